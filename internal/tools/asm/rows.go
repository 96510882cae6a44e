package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// weightedSum adds k rows of a matrix, each times its weight, in order from +0. A negative index is no row.
func (s vecISA) weightedSum() {
	s.begin("weightedSum", "func(dst *float32, rows *float32, stride int, index *int32, weights *float32, k int, n int)", "dst")
	weight, t := s.regs[12], s.regs[13:15]
	row := func(v int) Mem { return Mem{Base: RAX, Index: regI, Scale: 4, Disp: 4 * s.lanes * v} }
	for _, numVecs := range []int{64 / s.lanes, 1} {
		id := fmt.Sprintf("sum%d", numVecs)
		s.whole(id, numVecs, func() {
			for v := range numVecs {
				s.clear(s.regs[v])
			}
			s.eachWeight(id, weight, func() {
				for v := range numVecs {
					VMULPS(row(v), weight, t[v%2])
					VADDPS(t[v%2], s.regs[v], s.regs[v])
				}
			})
			for v := range numVecs {
				VMOVUPS(s.regs[v], s.at(0, v))
			}
		})
	}
	CMPQ(regI, regN)
	JGE(LabelRef(label("end")))
	s.tailMasks()
	if s.lanes == 8 {
		VMOVUPS(Mem{Base: RAX}, s.regs[regMask])
	}
	s.clear(s.regs[0])
	s.eachWeight("tail", weight, func() {
		if s.lanes == 8 {
			VMASKMOVPS(row(0), s.regs[regMask], t[0])
		} else {
			VMOVUPS_Z(row(0), K1, t[0])
		}
		VMULPS(t[0], weight, t[0])
		VADDPS(t[0], s.regs[0], s.regs[0])
	})
	s.storeTail(s.regs[0], 0, 0)
	Label(label("end"))
	end()
}

// eachWeight runs body with RAX at each row in turn and its weight in all lanes of weight.
func (s vecISA) eachWeight(id string, weight VecPhysical, body func()) {
	MOVQ(param("index"), RSI)
	MOVQ(param("weights"), R9)
	MOVQ(param("k"), R8)
	JMP(LabelRef(label(id + "_weightcheck")))
	Label(label(id + "_weight"))
	MOVLQSX(Mem{Base: RSI}, RAX)
	TESTQ(RAX, RAX)
	JLT(LabelRef(label(id + "_skip")))
	IMULQ(param("stride"), RAX)
	SHLQ(Imm(2), RAX)
	ADDQ(param("rows"), RAX)
	VBROADCASTSS(Mem{Base: R9}, weight)
	body()
	Label(label(id + "_skip"))
	ADDQ(Imm(4), RSI)
	ADDQ(Imm(4), R9)
	DECQ(R8)
	Label(label(id + "_weightcheck"))
	CMPQ(R8, Imm(0))
	JG(LabelRef(label(id + "_weight")))
}

// swiGLURows is swiGLU in place on rows of n gates followed by n ups. The AVX2 form stores whole vectors, into columns that
// nobody reads any more: its masked stores are slow.
func (s vecISA) swiGLURows() {
	s.begin("swiGLURows", "func(h *float32, numRows int, stride int, n int)", "h")
	MOVQ(param("numRows"), R8)
	MOVQ(param("stride"), R9)
	SHLQ(Imm(2), R9)
	MOVQ(regN, regI)
	ANDQ(I8(-s.lanes), regI)
	s.tailMasks()
	if s.lanes == 8 {
		VMOVUPS(Mem{Base: RAX}, s.regs[regMask])
	}
	JMP(LabelRef(label("check")))
	Label(label("row"))
	LEAQ(Mem{Base: ptrRegs[0], Index: regN, Scale: 4}, ptrRegs[1])
	XORQ(regI, regI)
	gate, up, r := s.regs[0], s.regs[1], s.regs[2:6]
	s.whole("vector", 1, func() {
		VMOVUPS(s.at(0, 0), gate)
		VMOVUPS(s.at(1, 0), up)
		s.gated(gate, up, r)
		VMOVUPS(up, s.at(0, 0))
	})
	CMPQ(regI, regN)
	JGE(LabelRef(label("next")))
	if s.lanes == 8 {
		VMASKMOVPS(s.at(0, 0), s.regs[regMask], gate)
		VMASKMOVPS(s.at(1, 0), s.regs[regMask], up)
		s.gated(gate, up, r)
		VMOVUPS(up, s.at(0, 0))
	} else {
		VMOVUPS_Z(s.at(0, 0), K1, gate)
		VMOVUPS_Z(s.at(1, 0), K1, up)
		s.gated(gate, up, r)
		VMOVUPS(up, K1, s.at(0, 0))
	}
	Label(label("next"))
	ADDQ(R9, ptrRegs[0])
	DECQ(R8)
	Label(label("check"))
	CMPQ(R8, Imm(0))
	JG(LabelRef(label("row")))
	end()
}

// gated replaces up by gate / (1 + exp(-gate)) * up; r are four scratch registers.
func (s vecISA) gated(gate, up VecPhysical, r []VecPhysical) {
	e := r[0]
	VXORPS(constant(signBit), gate, e)
	s.exp(e, r[1], r[2], r[3])
	VADDPS(constant(one), e, e)
	VDIVPS(e, gate, gate)
	VMULPS(up, gate, up)
}
