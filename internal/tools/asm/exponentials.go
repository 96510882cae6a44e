package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The constants of exp; internal/simd/exp.go has the same and says what they are.
var (
	expLog2e = f32(1.44269504)
	expMagic = f32(12582912)
	expLn2Hi = f32(0.693359375)
	expLn2Lo = f32(-2.12194440e-4)
	expPoly  = []uint32{
		f32(1.9875691500e-4), f32(1.3981999507e-3), f32(8.3334519073e-3),
		f32(4.1665795894e-2), f32(1.6666665459e-1), f32(5.0000001201e-1),
	}
	expMin = f32(-87)
	expMax = uint32(0x42b17217) // largest x whose exponential is finite
	one    = f32(1)
)

const (
	signBit = 0x80000000
	posInf  = 0x7f800000
)

func f32(x float32) uint32 { return math.Float32bits(x) }

// Comparison predicates of VCMPPS, all quiet.
const (
	cmpUnordered = 0x03
	cmpNotLess   = 0x15
	cmpGreater   = 0x1e
	scratchMask  = 14 // AVX2: register of comparison results
)

// exp replaces x by its exponential; p, t and n are scratch. Every product is rounded: no FMA.
func (s vecISA) exp(x, p, t, n VecPhysical) {
	VMULPS(constant(expLog2e), x, t)
	VADDPS(constant(expMagic), t, t) // the integer nearest x/ln2 is now in the low bits of t
	VSUBPS(constant(expMagic), t, n)
	VMULPS(constant(expLn2Hi), n, p)
	VSUBPS(p, x, p)
	VMULPS(constant(expLn2Lo), n, n)
	VSUBPS(n, p, n) // n = r, the remainder
	VMULPS(constant(expPoly[0]), n, p)
	for _, c := range expPoly[1:] {
		VADDPS(constant(c), p, p)
		if c != expPoly[len(expPoly)-1] {
			VMULPS(n, p, p)
		}
	}
	// p = c5 + r(...); result = (p * r*r + r) + 1
	VPSLLD(Imm(23), t, t)
	q := s.regs[scratchMask]
	VMULPS(n, n, q)
	VMULPS(q, p, p)
	VADDPS(n, p, p)
	VADDPS(constant(one), p, p)
	VPADDD(t, p, p) // times 2^n
	if s.lanes == 8 {
		VCMPPS(Imm(cmpNotLess), constant(expMin), x, q)
		VANDPS(q, p, p)
		VCMPPS(Imm(cmpGreater), constant(expMax), x, q)
		VBLENDVPS(q, constant(posInf), p, p)
		VCMPPS(Imm(cmpUnordered), x, x, q)
		VBLENDVPS(q, n, p, x)
		return
	}
	VCMPPS(Imm(cmpNotLess), constant(expMin), x, K3)
	VMOVAPS_Z(p, K3, p)
	VCMPPS(Imm(cmpGreater), constant(expMax), x, K3)
	VMOVUPS(constant(posInf), K3, p)
	VCMPPS(Imm(cmpUnordered), x, x, K3)
	VMOVAPS(n, K3, p)
	VMOVAPS(p, x)
}

// exponentials writes expSum, dst = exp(x - m) with 16 partial sums, and swiGLU.
func (s vecISA) exponentials() {
	s.begin("expSum", "func(dst *float32, x *float32, n int, m float32) float32", "dst", "x")
	numVecs := 16 / s.lanes
	acc, m := s.regs[10:10+numVecs], s.regs[8]
	s.broadcast("m", m)
	for _, a := range acc {
		s.clear(a)
	}
	s.whole("group", numVecs, func() {
		for v := range numVecs {
			r := s.regs[4*v : 4*v+4]
			VMOVUPS(s.at(1, v), r[0])
			VSUBPS(m, r[0], r[0])
			s.exp(r[0], r[1], r[2], r[3])
			VMOVUPS(r[0], s.at(0, v))
			VADDPS(r[0], acc[v], acc[v])
		}
	})
	CMPQ(regI, regN)
	JGE(LabelRef(label("fold")))
	s.tailMasks()
	r := s.regs[:4]
	for v := range numVecs {
		s.loadTail(1, v, r[0])
		VSUBPS(m, r[0], r[0])
		s.exp(r[0], r[1], r[2], r[3])
		s.keepTail(r[0], v)
		s.storeTail(r[0], 0, v)
		VADDPS(r[0], acc[v], acc[v])
		if v+1 < numVecs { // masked stores of nothing are slow
			MOVQ(regN, RBX)
			SUBQ(regI, RBX)
			CMPQ(RBX, Imm(uint64(s.lanes*(v+1))))
			JLE(LabelRef(label("fold")))
		}
	}
	Label(label("fold"))
	s.fold(acc)
	end()

	// dst = gate / (1 + exp(-gate)) * up
	s.begin("swiGLU", "func(dst *float32, gate *float32, up *float32, n int)", "dst", "gate", "up")
	s.run(mapLoop{numIn: 3, numOut: 1, unroll: 1, body: func(r []VecPhysical) {
		s.gated(r[1], r[2], s.regs[8:12])
		VMOVAPS(r[2], r[0])
	}})
}
