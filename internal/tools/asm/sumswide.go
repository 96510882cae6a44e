package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// emitWideSum is emitSumAll with vectors of 64 bytes, for any n.
func emitWideSum(streaming bool) {
	s := avx512
	s.begin(sumName("sumAll", streaming), "func(dsts *[]float32, numDsts int, srcs *[]float32, numSrcs int, n int)")
	store := storeTo(streaming)
	at := func(v int) Mem { return Mem{Base: RAX, Index: regI, Scale: 4, Disp: 64 * v} }
	group := 8
	if streaming {
		group = 4 // runs of 256 bytes for each array; longer ones were slower
	}
	for _, n := range []int{group, 1} {
		id := fmt.Sprintf("sum%d", n)
		s.loop(id, 16*n, func() {
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
	s.rest(func() {
		s.clear(s.regs[0])
		s.eachRank("tail_src", func() {
			VMOVUPS_Z(at(0), K2, s.regs[8])
			VADDPS(s.regs[8], s.regs[0], s.regs[0])
		})
		s.eachOf("dsts", "numDsts", "tail_dst", func() { VMOVUPS(s.regs[0], K2, at(0)) })
	})
	finish(streaming)
}

// rest does what is left, less than a vector, with its mask in K2.
func (s vecISA) rest(body func()) {
	CMPQ(regI, regN)
	JGE(LabelRef(label("end")))
	MOVQ(regI, R11) // the shift count lives in CL, which is regI's
	MOVQ(regN, RCX)
	SUBQ(R11, RCX)
	MOVQ(U32(1), RBX)
	SHLQ(CL, RBX)
	DECQ(RBX)
	KMOVD(EBX, K2)
	MOVQ(R11, regI)
	body()
	Label(label("end"))
}

// emitWideSumBF16 is emitSumAllBF16 with vectors of 64 bytes, for any n. Where the data is in a near cache, the arithmetic of the rounding
// is what a sum of bfloat16 costs, and the wide form needs half the instructions and fewer for each.
func emitWideSumBF16(streaming bool) {
	s := avx512
	s.begin(sumName("sumAllBF16", streaming), "func(dsts *[]uint16, numDsts int, srcs *[]uint16, numSrcs int, n int)")
	store := storeTo(streaming)
	w := wideRound{odds: K1, one: Z30, half: Z29, bit: Z28}
	high := Z31
	VMOVUPS(constant(0xffff0000), high)
	VMOVUPS(constant(1), w.one)
	VMOVUPS(constant(0x7fff), w.half)
	VMOVUPS(constant(0x10000), w.bit)
	MOVL(U32(0xaaaaaaaa), EBX)
	KMOVD(EBX, w.odds)
	at := func(v int) Mem { return Mem{Base: RAX, Index: regI, Scale: 2, Disp: 64 * v} }
	add := func(v int) {
		even, odd, x, t := s.regs[2*v], s.regs[2*v+1], s.regs[8+2*v], s.regs[9+2*v]
		VPSLLD(Imm(16), x, t)
		VPANDD(high, x, x)
		VADDPS(t, even, even)
		VADDPS(x, odd, odd)
	}
	for _, n := range []int{4, 1} {
		id := fmt.Sprintf("sum%d", n)
		s.loop(id, 32*n, func() {
			for r := range 2 * n {
				s.clear(s.regs[r])
			}
			s.eachRank(id+"_src", func() {
				for v := range n {
					VMOVUPS(at(v), s.regs[8+2*v])
					add(v)
				}
			})
			w.round(s, id, n)
			s.eachOf("dsts", "numDsts", id+"_dst", func() {
				for v := range n {
					store(s.regs[2*v], at(v))
				}
			})
		})
	}
	s.rest(func() {
		s.clear(s.regs[0])
		s.clear(s.regs[1])
		s.eachRank("tail_src", func() {
			VMOVDQU16_Z(at(0), K2, s.regs[8])
			add(0)
		})
		w.round(s, "tail", 1)
		s.eachOf("dsts", "numDsts", "tail_dst", func() { VMOVDQU16(s.regs[0], K2, at(0)) })
	})
	finish(streaming)
}

// wideRound holds what rounding needs: the mask of odd words, and vectors of 1, 0x7fff and 0x10000.
type wideRound struct {
	odds           OpmaskPhysical
	one, half, bit VecPhysical
}

// round does what roundBF16 does: to nearest even, and a NaN becomes quiet. To the sum it adds 0x7fff, and 1 more if bit 16 is set.
func (w wideRound) round(s vecISA, id string, n int) {
	even := func(v int) VecPhysical { return s.regs[2*v] }
	odd := func(v int) VecPhysical { return s.regs[2*v+1] }
	nan := []OpmaskPhysical{K3, K4, K5, K6}[:n]
	for v := range n {
		VCMPPS(Imm(cmpUnordered), even(v), odd(v), nan[v])
	}
	for v := 1; v < n; v++ {
		KORW(nan[v], nan[0], nan[0])
	}
	KORTESTW(nan[0], nan[0])
	JNZ(LabelRef(label(id + "_nan")))
	up := func(sum VecPhysical, k OpmaskPhysical) {
		VPTESTMD(w.bit, sum, k)
		VPADDD(w.half, sum, sum)
		VPADDD(w.one, sum, k, sum)
	}
	pack := func(v int) {
		VPSRLD(Imm(16), even(v), even(v))
		VMOVDQU16(odd(v), w.odds, even(v))
	}
	for v := range n {
		up(even(v), []OpmaskPhysical{K3, K5}[v%2])
		up(odd(v), []OpmaskPhysical{K4, K6}[v%2])
		pack(v)
	}
	JMP(LabelRef(label(id + "_rounded")))
	Label(label(id + "_nan"))
	quiet := constant(0x400000)
	for v := range n {
		for _, sum := range []VecPhysical{even(v), odd(v)} {
			VCMPPS(Imm(cmpUnordered), sum, sum, K3)
			VPORD(quiet, sum, s.regs[8])
			up(sum, K4)
			VMOVDQA32(s.regs[8], K3, sum)
		}
		pack(v)
	}
	Label(label(id + "_rounded"))
}
