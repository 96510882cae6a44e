package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// emitMax writes max and maxAbs for n >= 8. Both are idempotent, so the tail is the last eight values, seen again.
func emitMax() {
	s := avx2
	acc, nan, x, t := s.regs[:4], s.regs[4], s.regs[5], s.regs[6]
	loops := func(step func(v int, at Mem)) {
		s.whole("group", 4, func() {
			for v := range 4 {
				step(v, s.at(0, v))
			}
		})
		s.whole("vector", 1, func() { step(0, s.at(0, 0)) })
		step(0, Mem{Base: ptrRegs[0], Index: regN, Scale: 4, Disp: -32})
	}
	fold := func(join func(a, b, to VecPhysical)) {
		join(acc[2], acc[0], acc[0])
		join(acc[3], acc[1], acc[1])
		join(acc[1], acc[0], acc[0])
		VEXTRACTF128(Imm(1), Y0, X5)
		join(X5, X0, X0)
		VPERMILPS(Imm(0x0e), X0, X5)
		join(X5, X0, X0)
		VPERMILPS(Imm(0x01), X0, X5)
		join(X5, X0, X0)
		VMOVSS(X0, result())
	}
	// max returns the maximum, and in nan whether any value was NaN (VMAXPS drops one).
	s.begin("max", "func(a *float32, n int) (max float32, nan bool)", "a")
	for _, a := range acc {
		VMOVUPS(constant(posInf|signBit), a)
	}
	s.clear(nan)
	loops(func(v int, at Mem) {
		VMOVUPS(at, x)
		VMAXPS(x, acc[v], acc[v])
		VCMPPS(Imm(cmpUnordered), x, x, t)
		VORPS(t, nan, nan)
	})
	fold(func(a, b, to VecPhysical) { VMAXPS(a, b, to) })
	VMOVMSKPS(nan, EBX)
	CMPL(EBX, Imm(0))
	b, err := ReturnIndex(1).Resolve()
	if err != nil {
		panic(err)
	}
	SETNE(b.Addr)
	end()

	// Without their signs floats order as integers, NaN above infinity: the integer maximum keeps NaN.
	s.begin("maxAbs", "func(a *float32, n int) float32", "a")
	for _, a := range acc {
		s.clear(a)
	}
	loops(func(v int, at Mem) {
		VMOVUPS(at, x)
		VANDPS(constant(^uint32(signBit)), x, x)
		VPMAXUD(x, acc[v], acc[v])
	})
	fold(func(a, b, to VecPhysical) { VPMAXUD(a, b, to) })
	end()
}

// at16 is the address of vector v of 16-bit values in array p.
func at16(p, v int) Mem { return Mem{Base: ptrRegs[p], Index: regI, Scale: 2, Disp: 16 * v} }

// A half is a 16-bit format: how eight values are widened and narrowed.
type half struct {
	name   string
	widen  func(src Mem, to VecPhysical)
	narrow func(from VecPhysical, dst Mem, t, u VecPhysical)
}

var halves = []half{
	{"BF16", func(src Mem, to VecPhysical) {
		VPMOVZXWD(src, to)
		VPSLLD(Imm(16), to, to)
	}, narrowBF16},
	{"F16", func(src Mem, to VecPhysical) { VCVTPH2PS(src, to) },
		func(from VecPhysical, dst Mem, t, u VecPhysical) { VCVTPS2PH(Imm(0), from, dst) }},
}

// narrowBF16 rounds to nearest even on the integer, and keeps a NaN one by setting its quiet bit.
func narrowBF16(from VecPhysical, dst Mem, t, u VecPhysical) {
	VPSRLD(Imm(16), from, t)
	VPAND(constant(1), t, u)
	VPADDD(constant(0x7fff), u, u)
	VPADDD(from, u, u)
	VPSRLD(Imm(16), u, u)
	VPOR(constant(0x40), t, t)
	VCMPPS(Imm(cmpUnordered), from, from, from)
	VBLENDVPS(from, t, u, t)
	VEXTRACTI128(Imm(1), t, u.AsX())
	VPACKUSDW(u.AsX(), t.AsX(), t.AsX())
	VMOVUPS(t.AsX(), dst)
}

// emitHalves writes the conversions and sums of 16-bit formats for multiples of eight values.
func emitHalves() {
	s := avx2
	t, u := s.regs[8], s.regs[9]
	for _, h := range halves {
		s.begin("widen"+h.name, "func(dst *float32, src *uint16, n int)", "dst", "src")
		for _, n := range []int{4, 1} {
			s.whole([]string{"", "vector", "", "", "group"}[n], n, func() {
				for v := range n {
					h.widen(at16(1, v), s.regs[v])
				}
				for v := range n {
					VMOVUPS(s.regs[v], s.at(0, v))
				}
			})
		}
		end()
		s.begin("narrow"+h.name, "func(dst *uint16, src *float32, n int)", "dst", "src")
		s.whole("vector", 1, func() {
			VMOVUPS(s.at(1, 0), s.regs[0])
			h.narrow(s.regs[0], at16(0, 0), t, u)
		})
		end()
	}
	s.begin("sumRanksF16", "func(dst *uint16, srcs *[]uint16, numSrcs int, n int)", "dst")
	s.rankLoop(2, 8, 4, 1, func(v int, src Mem) {
		VCVTPH2PS(src, s.regs[4+v])
		VADDPS(s.regs[4+v], s.regs[v], s.regs[v])
	}, func(v int) { VCVTPS2PH(Imm(0), s.regs[v], at16(0, v)) })
	end()
	s.emitSumBF16()
}

// emitSumBF16 takes sixteen values at once without shuffling them: the even ones are the low halves of 32-bit lanes, the
// odd ones the high halves, and both become float32 by clearing the other half. Each kind has its own sums.
func (s vecISA) emitSumBF16() {
	high, x, t, u := s.regs[15], s.regs[12], s.regs[13], s.regs[14]
	s.begin("sumRanksBF16", "func(dst *uint16, srcs *[]uint16, numSrcs int, n int)", "dst")
	VMOVUPS(constant(0xffff0000), high)
	round := func(sum VecPhysical) {
		VPSRLD(Imm(16), sum, t)
		VPAND(constant(1), t, t)
		VPADDD(constant(0x7fff), t, t)
		VPADDD(sum, t, t)
		VPOR(constant(0x400000), sum, u)
		VCMPPS(Imm(cmpUnordered), sum, sum, sum)
		VBLENDVPS(sum, u, t, sum)
	}
	s.rankLoop(2, 16, 4, 2, func(v int, src Mem) {
		even, odd := s.regs[2*v], s.regs[2*v+1]
		VMOVUPS(src, x)
		VPSLLD(Imm(16), x, t)
		VADDPS(t, even, even)
		VPAND(high, x, x)
		VADDPS(x, odd, odd)
	}, func(v int) {
		even, odd := s.regs[2*v], s.regs[2*v+1]
		round(even)
		round(odd)
		VPSRLD(Imm(16), even, even)
		VPAND(high, odd, odd)
		VPOR(odd, even, even)
		VMOVUPS(even, Mem{Base: ptrRegs[0], Index: regI, Scale: 2, Disp: 32 * v})
	})
	end()
}
