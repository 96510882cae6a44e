package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// A vecISA is a vector width. Both levels run the same loops in the same order and give the same bits.
type vecISA struct {
	name  string
	lanes int // float32 values in a register
	regs  []VecPhysical
}

var (
	avx2   = vecISA{"AVX2", 8, []VecPhysical{Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11, Y12, Y13, Y14, Y15}}
	avx512 = vecISA{"AVX512", 16, []VecPhysical{Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15}}
)

// Registers by role. regMask holds lane masks in the AVX2 form; K1 and K2 do in the other.
var (
	ptrRegs = []GPPhysical{RDI, RSI, R8, R9, R10}
	regN    = RDX
	regI    = RCX
)

const regMask = 15

func generateSIMD() {
	laneMask = GLOBL("laneMask", NOPTR|RODATA)
	for i := range 64 {
		v := U32(0)
		if i < 32 {
			v = 0xffffffff
		}
		DATA(4*i, v)
	}
	for _, isa := range []vecISA{avx2, avx512} {
		isa.elementwise()
		isa.reductions()
		isa.exponentials()
		isa.sumRanks()
		isa.weightedSum()
		isa.swiGLURows()
	}
	emitMax()
	emitTopK()
	emitHalves()
}

var laneMask Mem

// constants holds the read-only vectors by value, each replicated over 64 bytes.
var constants = map[uint32]Mem{}

func constant(bits uint32) Mem {
	m, ok := constants[bits]
	if !ok {
		m = GLOBL(fmt.Sprintf("const%08x", bits), NOPTR|RODATA)
		for i := range 16 {
			DATA(4*i, U32(bits))
		}
		constants[bits] = m
	}
	return m
}

// begin declares a function, and loads its pointer arguments and n.
func (s vecISA) begin(name, signature string, pointers ...string) {
	labelPrefix = name + s.name
	TEXT(name+s.name, NOSPLIT, signature)
	Pragma("noescape")
	for i, p := range pointers {
		MOVQ(param(p), ptrRegs[i])
	}
	MOVQ(param("n"), regN)
	XORQ(regI, regI)
}

func end() {
	VZEROUPPER()
	RET()
}

var labelPrefix string

func label(s string) string { return labelPrefix + "_" + s }

// at is the address of vector v behind the loop index, in array p.
func (s vecISA) at(p, v int) Mem {
	return Mem{Base: ptrRegs[p], Index: regI, Scale: 4, Disp: 4 * s.lanes * v}
}

func (s vecISA) broadcast(name string, to VecPhysical) { VBROADCASTSS(param(name), to) }

func (s vecISA) clear(r VecPhysical) { VXORPS(r, r, r) }

// tailMasks prepares masks for the regN - regI values that are left, at most 32 of them.
func (s vecISA) tailMasks() {
	MOVQ(regN, RBX)
	SUBQ(regI, RBX)
	if s.lanes == 8 {
		NEGQ(RBX)
		LEAQ(laneMask, RAX)
		LEAQ(Mem{Base: RAX, Index: RBX, Scale: 4, Disp: 128}, RAX)
		return
	}
	MOVQ(regI, R11) // the shift count lives in CL, which is regI's
	MOVQ(RBX, RCX)
	MOVQ(U32(1), RBX)
	SHLQ(CL, RBX)
	DECQ(RBX)
	KMOVW(EBX, K1)
	SHRQ(Imm(16), RBX)
	KMOVW(EBX, K2)
	MOVQ(R11, regI)
}

func kreg(v int) Register { return []Register{K1, K2}[v] }

// loadTail loads vector v of the tail, with zeros in the lanes past the end.
func (s vecISA) loadTail(p, v int, to VecPhysical) {
	if s.lanes == 8 {
		VMOVUPS(Mem{Base: RAX, Disp: 32 * v}, s.regs[regMask])
		VMASKMOVPS(s.at(p, v), s.regs[regMask], to)
		return
	}
	VMOVUPS_Z(s.at(p, v), kreg(v), to)
}

// storeTail stores the valid lanes of vector v of the tail; loadTail has set the mask.
func (s vecISA) storeTail(from VecPhysical, p, v int) {
	if s.lanes == 8 {
		VMASKMOVPS(from, s.regs[regMask], s.at(p, v))
		return
	}
	VMOVUPS(from, kreg(v), s.at(p, v))
}

// keepTail clears the lanes of a result that lie past the end.
func (s vecISA) keepTail(r VecPhysical, v int) {
	if s.lanes == 8 {
		VANDPS(s.regs[regMask], r, r)
		return
	}
	VMOVAPS_Z(r, kreg(v), r)
}

// whole runs body for each group of numVecs whole vectors.
func (s vecISA) whole(id string, numVecs int, body func()) { s.loop(id, numVecs*s.lanes, body) }

// loop runs body for each group of step values.
func (s vecISA) loop(id string, step int, body func()) {
	MOVQ(regN, R11)
	SUBQ(U32(uint32(step)), R11) // last index at which a whole group fits
	JMP(LabelRef(label(id + "_check")))
	Label(label(id))
	body()
	ADDQ(U32(uint32(step)), regI)
	Label(label(id + "_check"))
	CMPQ(regI, R11)
	JLE(LabelRef(label(id)))
}
