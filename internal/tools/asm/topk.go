package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	keyNone   = 0x80000000 // below every key: a lane past the end, or one that was taken
	keyNegInf = 0x807fffff // key of -Inf, and of NaN
)

// emitTopK writes topK for 1 <= k <= n <= 64: the values become integer keys in registers, and each round finds the largest
// key, the lowest lane that has it, and takes that lane out.
func emitTopK() {
	s := avx2
	index := GLOBL("laneIndex", NOPTR|RODATA)
	for i := range 64 {
		DATA(4*i, U32(uint32(i)))
	}
	inOrder := GLOBL("packedOrder", NOPTR|RODATA) // undoes the interleaving of the halves by the packs
	for i, v := range []uint32{0, 4, 1, 5, 2, 6, 3, 7} {
		DATA(4*i, U32(v))
	}
	s.begin("topK", "func(ids *int32, x *float32, n int, k int)", "ids", "x")
	MOVQ(param("k"), R8)
	VMOVUPS(constant(keyNone), Y10)
	VMOVUPS(inOrder, Y11)
	CMPQ(regN, Imm(32))
	JG(LabelRef(label("wide")))
	s.emitTopKOf(4, index)
	Label(label("wide"))
	s.emitTopKOf(8, index)
}

// emitTopKOf keeps the keys in numVecs registers, of which the last four may be part of the row only.
func (s vecISA) emitTopKOf(numVecs int, index Mem) {
	id := func(name string) string { return label(name + map[int]string{4: "32", 8: "64"}[numVecs]) }
	const whole = 4
	MOVQ(regN, RBX)
	if numVecs > whole {
		SUBQ(Imm(32), RBX)
	}
	NEGQ(RBX)
	LEAQ(laneMask, RAX)
	LEAQ(Mem{Base: RAX, Index: RBX, Scale: 4, Disp: 128}, RAX)
	keys, mask, t, u := s.regs[:numVecs], Y15, Y12, Y13
	for v, key := range keys {
		masked := v >= numVecs-whole
		at := Mem{Base: ptrRegs[1], Disp: 32 * v}
		if masked {
			VMOVUPS(Mem{Base: RAX, Disp: 32 * (v - numVecs + whole)}, mask)
			VMASKMOVPS(at, mask, key)
		} else {
			VMOVUPS(at, key)
		}
		s.clear(u)
		VADDPS(u, key, key) // -0 becomes +0
		VCMPPS(Imm(cmpUnordered), key, key, t)
		VPSRAD(Imm(31), key, u)
		VPAND(constant(^uint32(signBit)), u, u)
		VPXOR(u, key, key)
		VBLENDVPS(t, constant(keyNegInf), key, key)
		if masked {
			VBLENDVPS(mask, key, Y10, key)
		}
	}
	Label(id("round"))
	s.largest(keys, t, u)
	for half := 0; half < numVecs; half += whole {
		r := []VecPhysical{Y8, Y9, Y14, Y15}
		for v := range whole {
			VPCMPEQD(t, keys[half+v], r[v])
		}
		VPACKSSDW(r[1], r[0], r[0])
		VPACKSSDW(r[3], r[2], r[2])
		VPACKSSWB(r[2], r[0], r[0])
		VPERMD(r[0], Y11, r[0])
		if half == 0 {
			VPMOVMSKB(r[0], EAX)
		} else {
			VPMOVMSKB(r[0], EBX)
			SHLQ(Imm(32), RBX)
			ORQ(RBX, RAX)
		}
	}
	TZCNTQ(RAX, RAX)
	MOVL(EAX, Mem{Base: ptrRegs[0], Index: regI, Scale: 4})
	VMOVD(EAX, X8)
	VPBROADCASTD(X8, Y8)
	for v, key := range keys {
		VPCMPEQD(index.Offset(32*v), Y8, Y9)
		VBLENDVPS(Y9, Y10, key, key)
	}
	INCQ(regI)
	CMPQ(regI, R8)
	JL(LabelRef(id("round")))
	end()
}

// largest puts the largest key into every lane of t.
func (s vecISA) largest(keys []VecPhysical, t, u VecPhysical) {
	spare := []VecPhysical{t, u, Y8, Y9}[:len(keys)/2]
	for i, r := range spare {
		VPMAXSD(keys[2*i], keys[2*i+1], r)
	}
	for n := len(spare) / 2; n > 0; n /= 2 {
		for i := range n {
			VPMAXSD(spare[i+n], spare[i], spare[i])
		}
	}
	VPERM2I128(Imm(1), t, t, u)
	VPMAXSD(u, t, t)
	VPSHUFD(Imm(0x4e), t, u)
	VPMAXSD(u, t, t)
	VPSHUFD(Imm(0xb1), t, u)
	VPMAXSD(u, t, t)
}
