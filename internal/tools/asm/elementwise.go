package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// A mapLoop is an operation without carried state: out = body(in) for each lane.
type mapLoop struct {
	numIn, numOut int // arrays 0..numIn-1 are read, arrays 0..numOut-1 are written
	unroll        int
	writeFirst    bool // array 0 is only written
	// body turns the inputs in registers r[0..numIn-1] into outputs in r[0..numOut-1]; r has four registers.
	body func(r []VecPhysical)
}

func (m mapLoop) firstIn() int {
	if m.writeFirst {
		return 1
	}
	return 0
}

// run covers n values: groups of unroll vectors, single vectors, and one masked vector.
func (s vecISA) run(m mapLoop) {
	const perVec = 4
	group := func(n int) func() {
		return func() {
			for v := range n {
				r := s.regs[v*perVec : (v+1)*perVec]
				for p := m.firstIn(); p < m.numIn; p++ {
					VMOVUPS(s.at(p, v), r[p])
				}
				m.body(r)
				for p := range m.numOut {
					VMOVUPS(r[p], s.at(p, v))
				}
			}
		}
	}
	if m.unroll > 1 {
		s.whole("group", m.unroll, group(m.unroll))
	}
	s.whole("vector", 1, group(1))
	CMPQ(regI, regN)
	JGE(LabelRef(label("end")))
	s.tailMasks()
	for p := m.firstIn(); p < m.numIn; p++ {
		s.loadTail(p, 0, s.regs[p])
	}
	m.body(s.regs[:perVec])
	for p := range m.numOut {
		s.storeTail(s.regs[p], p, 0)
	}
	Label(label("end"))
	end()
}

func (s vecISA) elementwise() {
	scalar := s.regs[12]
	s.begin("add", "func(dst *float32, a *float32, n int)", "dst", "a")
	s.run(mapLoop{numIn: 2, numOut: 1, unroll: 3, body: func(r []VecPhysical) { VADDPS(r[1], r[0], r[0]) }})

	s.begin("mul", "func(dst *float32, a *float32, n int)", "dst", "a")
	s.run(mapLoop{numIn: 2, numOut: 1, unroll: 3, body: func(r []VecPhysical) { VMULPS(r[1], r[0], r[0]) }})

	s.begin("scale", "func(dst *float32, n int, a float32)", "dst")
	s.broadcast("a", scalar)
	s.run(mapLoop{numIn: 1, numOut: 1, unroll: 3, body: func(r []VecPhysical) { VMULPS(scalar, r[0], r[0]) }})

	s.begin("axpy", "func(dst *float32, x *float32, n int, a float32)", "dst", "x")
	s.broadcast("a", scalar)
	s.run(mapLoop{numIn: 2, numOut: 1, unroll: 3, body: func(r []VecPhysical) {
		VMULPS(scalar, r[1], r[1])
		VADDPS(r[1], r[0], r[0])
	}})

	// dst = (x * a) * w
	s.begin("scaleMul", "func(dst *float32, x *float32, w *float32, n int, a float32)", "dst", "x", "w")
	s.broadcast("a", scalar)
	s.run(mapLoop{numIn: 3, numOut: 1, unroll: 3, writeFirst: true, body: func(r []VecPhysical) {
		VMULPS(scalar, r[1], r[1])
		VMULPS(r[2], r[1], r[0])
	}})

	s.begin("rotate", "func(lo *float32, hi *float32, cos *float32, sin *float32, n int)", "lo", "hi", "cos", "sin")
	t := s.regs[12]
	s.run(mapLoop{numIn: 4, numOut: 2, unroll: 1, body: func(r []VecPhysical) {
		VMULPS(r[1], r[3], t)    // hi*sin
		VMULPS(r[1], r[2], r[1]) // hi*cos
		VMULPS(r[0], r[3], r[3]) // lo*sin
		VMULPS(r[0], r[2], r[0]) // lo*cos
		VSUBPS(t, r[0], r[0])
		VADDPS(r[3], r[1], r[1])
	}})
}

// reductions keeps 32 partial sums, value i in sum i mod 32, and folds them 16, 8, 4, 2, 1 apart.
func (s vecISA) reductions() {
	const partial = 32
	numVecs := partial / s.lanes
	acc, x, y := s.regs[:numVecs], s.regs[8], s.regs[9]
	reduce := func(term func(v int, load, store func(p, v int, r VecPhysical))) {
		for _, a := range acc {
			s.clear(a)
		}
		load := func(p, v int, to VecPhysical) { VMOVUPS(s.at(p, v), to) }
		store := func(p, v int, from VecPhysical) { VMOVUPS(from, s.at(p, v)) }
		s.whole("group", numVecs, func() {
			for v := range numVecs {
				term(v, load, store)
			}
		})
		CMPQ(regI, regN)
		JGE(LabelRef(label("fold")))
		s.tailMasks()
		for v := range numVecs {
			term(v, s.loadTail, func(p, v int, from VecPhysical) { s.storeTail(from, p, v) })
		}
		Label(label("fold"))
		s.fold(acc)
		end()
	}
	s.begin("dot", "func(a *float32, b *float32, n int) float32", "a", "b")
	reduce(func(v int, load, _ func(p, v int, r VecPhysical)) {
		load(0, v, x)
		load(1, v, y)
		VMULPS(y, x, x)
		VADDPS(x, acc[v], acc[v])
	})
	s.begin("sumSquares", "func(a *float32, n int) float32", "a")
	reduce(func(v int, load, _ func(p, v int, r VecPhysical)) {
		load(0, v, x)
		VMULPS(x, x, x)
		VADDPS(x, acc[v], acc[v])
	})
	// dst += a, and the sum of squares of the new dst
	s.begin("addSumSquares", "func(dst *float32, a *float32, n int) float32", "dst", "a")
	reduce(func(v int, load, store func(p, v int, r VecPhysical)) {
		load(0, v, x)
		load(1, v, y)
		VADDPS(y, x, x)
		store(0, v, x)
		VMULPS(x, x, x)
		VADDPS(x, acc[v], acc[v])
	})
}

// fold adds the partial sums pairwise, halving their number each time, and stores the result.
func (s vecISA) fold(acc []VecPhysical) {
	for n := len(acc) / 2; n > 0; n /= 2 {
		for v := range n {
			VADDPS(acc[v+n], acc[v], acc[v])
		}
	}
	y, x := acc[0].AsY(), acc[0].AsX()
	ty, tx := s.regs[9].AsY(), s.regs[9].AsX()
	if s.lanes == 16 {
		VEXTRACTF64X4(Imm(1), acc[0], ty)
		VADDPS(ty, y, y)
	}
	VEXTRACTF128(Imm(1), y, tx)
	VADDPS(tx, x, x)
	VPERMILPS(Imm(0x0e), x, tx) // lanes 2, 3
	VADDPS(tx, x, x)
	VPERMILPS(Imm(0x01), x, tx) // lane 1
	VADDSS(tx, x, x)
	VMOVSS(x, result())
}

// result is the stack slot of the first result.
func result() Mem {
	b, err := ReturnIndex(0).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// sumRanks adds the ranks' arrays in rank order, from +0. srcs points at slice headers; index and n count values.
func (s vecISA) sumRanks() {
	s.begin("sumRanks", "func(dst *float32, srcs *[]float32, numSrcs int, n int)", "dst")
	s.rankLoop(4, s.lanes, 8, 1, func(v int, src Mem) { VADDPS(src, s.regs[v], s.regs[v]) },
		func(v int) { VMOVUPS(s.regs[v], s.at(0, v)) })
	CMPQ(regI, regN)
	JGE(LabelRef(label("end")))
	s.tailMasks()
	acc, t := s.regs[0], s.regs[8]
	s.clear(acc)
	if s.lanes == 8 {
		VMOVUPS(Mem{Base: RAX}, s.regs[regMask])
	}
	s.eachRank("tail", func() {
		src := Mem{Base: RAX, Index: regI, Scale: 4}
		if s.lanes == 8 {
			VMASKMOVPS(src, s.regs[regMask], t)
		} else {
			VMOVUPS_Z(src, K1, t)
		}
		VADDPS(t, acc, acc)
	})
	s.storeTail(acc, 0, 0)
	Label(label("end"))
	end()
}

// rankLoop sums units of all ranks: groups of numUnits, then single ones. A unit has lanes values of size bytes each and
// numSums registers of sums.
func (s vecISA) rankLoop(size uint8, lanes, numUnits, numSums int, add func(u int, src Mem), store func(u int)) {
	for _, n := range []int{numUnits, 1} {
		id := fmt.Sprintf("sum%d", n)
		s.loop(id, n*lanes, func() {
			for r := range n * numSums {
				s.clear(s.regs[r])
			}
			s.eachRank(id, func() {
				for u := range n {
					add(u, Mem{Base: RAX, Index: regI, Scale: size, Disp: int(size) * lanes * u})
				}
			})
			for u := range n {
				store(u)
			}
		})
	}
}

// eachRank runs body with RAX at each rank's array in turn.
func (s vecISA) eachRank(id string, body func()) {
	const headerBytes = 24
	MOVQ(param("srcs"), RSI)
	MOVQ(param("numSrcs"), R8)
	JMP(LabelRef(label(id + "_rankcheck")))
	Label(label(id + "_rank"))
	MOVQ(Mem{Base: RSI}, RAX)
	body()
	ADDQ(Imm(headerBytes), RSI)
	DECQ(R8)
	Label(label(id + "_rankcheck"))
	CMPQ(R8, Imm(0))
	JG(LabelRef(label(id + "_rank")))
}
