package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// generateSums writes the sums that go to several arrays at once: each value is added once and stored wherever it is wanted.
func generateSums() {
	for _, streaming := range []bool{false, true} {
		avx2.emitSumAll(streaming)
		avx2.emitSumAllBF16(streaming)
		emitWideSum(streaming)
		emitWideSumBF16(streaming)
	}
}

// sumName is the name of a form that stores past the caches, or not.
func sumName(name string, streaming bool) string {
	if streaming {
		return name + "Stream"
	}
	return name
}

// storeTo picks the store of a form. The streaming one needs an address that is a multiple of the vector.
func storeTo(streaming bool) func(from VecPhysical, to Mem) {
	if streaming {
		return func(from VecPhysical, to Mem) { VMOVNTPS(from, to) }
	}
	return func(from VecPhysical, to Mem) { VMOVUPS(from, to) }
}

// emitSumAll sums float32: whole vectors only.
func (s vecISA) emitSumAll(streaming bool) {
	s.begin(sumName("sumAll", streaming), "func(dsts *[]float32, numDsts int, srcs *[]float32, numSrcs int, n int)")
	store := storeTo(streaming)
	at := func(v int) Mem { return Mem{Base: RAX, Index: regI, Scale: 4, Disp: 32 * v} }
	for _, n := range []int{8, 1} {
		id := fmt.Sprintf("sum%d", n)
		s.loop(id, 8*n, func() {
			for v := range n {
				s.clear(s.regs[v])
			}
			s.eachRank(id+"_src", func() {
				for v := range n {
					VADDPS(at(v), s.regs[v], s.regs[v])
				}
			})
			s.eachOf("dsts", "numDsts", id+"_dst", func() {
				for v := range n {
					store(s.regs[v], at(v))
				}
			})
		})
	}
	finish(streaming)
}

// emitSumAllBF16 sums bfloat16 as emitSumBF16 does. Rounding looks for NaN once in a group, since hardly any has one.
func (s vecISA) emitSumAllBF16(streaming bool) {
	s.begin(sumName("sumAllBF16", streaming), "func(dsts *[]uint16, numDsts int, srcs *[]uint16, numSrcs int, n int)")
	store := storeTo(streaming)
	high, one, half := s.regs[15], s.regs[14], s.regs[13]
	VMOVUPS(constant(0xffff0000), high)
	VMOVUPS(constant(1), one)
	VMOVUPS(constant(0x7fff), half)
	at := func(v int) Mem { return Mem{Base: RAX, Index: regI, Scale: 2, Disp: 32 * v} }
	for _, n := range []int{4, 1} {
		id := fmt.Sprintf("sum%d", n)
		s.loop(id, 16*n, func() {
			for r := range 2 * n {
				s.clear(s.regs[r])
			}
			s.eachRank(id+"_src", func() {
				for v := range n {
					even, odd, x, t := s.regs[2*v], s.regs[2*v+1], s.regs[11-v%2], s.regs[9-v%2]
					VMOVUPS(at(v), x)
					VPSLLD(Imm(16), x, t)
					VPAND(high, x, x)
					VADDPS(t, even, even)
					VADDPS(x, odd, odd)
				}
			})
			s.roundBF16(id, n, one, half)
			s.eachOf("dsts", "numDsts", id+"_dst", func() {
				for v := range n {
					store(s.regs[2*v], at(v))
				}
			})
		})
	}
	finish(streaming)
}

// roundBF16 rounds n pairs of sums to nearest even and leaves each pair's sixteen values in its first register. A NaN becomes quiet.
func (s vecISA) roundBF16(id string, n int, one, half VecPhysical) {
	t, nan := s.regs[12], s.regs[11]
	for v := range n {
		even, odd := s.regs[2*v], s.regs[2*v+1]
		if v == 0 {
			VCMPPS(Imm(cmpUnordered), even, odd, nan)
			continue
		}
		VCMPPS(Imm(cmpUnordered), even, odd, t)
		VORPS(t, nan, nan)
	}
	VPTEST(nan, nan)
	JNZ(LabelRef(label(id + "_nan")))
	round := func(sum, t VecPhysical) {
		VPSRLD(Imm(16), sum, t)
		VPAND(one, t, t)
		VPADDD(half, sum, sum)
		VPADDD(t, sum, sum)
	}
	pack := func(even, odd VecPhysical) {
		VPSRLD(Imm(16), even, even)
		VPBLENDW(Imm(0xaa), odd, even, even)
	}
	for v := range n {
		even, odd := s.regs[2*v], s.regs[2*v+1]
		round(even, s.regs[12-v%2*2])
		round(odd, s.regs[11-v%2*2])
		pack(even, odd)
	}
	JMP(LabelRef(label(id + "_rounded")))
	Label(label(id + "_nan"))
	quiet := constant(0x400000)
	for v := range n {
		even, odd := s.regs[2*v], s.regs[2*v+1]
		for _, sum := range []VecPhysical{even, odd} {
			VCMPPS(Imm(cmpUnordered), sum, sum, nan)
			VPOR(quiet, sum, s.regs[10])
			round(sum, t)
			VBLENDVPS(nan, s.regs[10], sum, sum)
		}
		pack(even, odd)
	}
	Label(label(id + "_rounded"))
}

// finish ends a function; what was stored past the caches must be seen before what follows.
func finish(streaming bool) {
	if streaming {
		SFENCE()
	}
	end()
}

// eachOf runs body with RAX at each array of a list of slice headers in turn.
func (s vecISA) eachOf(list, count, id string, body func()) {
	const headerBytes = 24
	MOVQ(param(list), RSI)
	MOVQ(param(count), R8)
	Label(label(id))
	MOVQ(Mem{Base: RSI}, RAX)
	body()
	ADDQ(Imm(headerBytes), RSI)
	DECQ(R8)
	JNZ(LabelRef(label(id)))
}
