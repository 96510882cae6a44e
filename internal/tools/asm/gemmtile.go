package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// tile computes rows x (16*panels) elements of C and moves the cursors past the rows.
func (f *gemmFunc) tile(rows, panels int) {
	nv := panels * f.vecs
	acc := func(r, v int) VecPhysical { return f.regs[r*nv+v] }
	spare := f.regs[rows*nv:]
	id := func(s string) string { return f.label("%dv%d_%s", rows, nv, s) }

	CMPB(param("accumulate"), Imm(0))
	JEQ(LabelRef(id("zero")))
	f.eachC(rows, panels, spare, id("load"), func(r, v int, at Mem, mask Op) {
		switch {
		case mask == nil:
			VMOVUPS(at, acc(r, v))
		case f.wide:
			VMOVUPS_Z(at, mask, acc(r, v))
		default:
			VMASKMOVPS(at, mask, acc(r, v))
		}
	})
	JMP(LabelRef(id("start")))
	Label(id("zero"))
	for r := range rows {
		for v := range nv {
			f.zero(acc(r, v))
		}
	}
	Label(id("start"))
	f.loadPointers(rows, panels)

	MOVQ(param("k"), RDX)
	XORQ(RCX, RCX)
	SUBQ(Imm(unrollK), RDX)
	JL(LabelRef(id("tail")))
	Label(id("loop"))
	for u := range unrollK {
		f.step(rows, panels, u, acc, spare)
	}
	for p := range panels {
		ADDQ(U32(panelBytes*unrollK), panelRegs[p])
	}
	ADDQ(Imm(unrollK), RCX)
	CMPQ(RCX, RDX)
	JLE(LabelRef(id("loop")))
	Label(id("tail"))
	ADDQ(Imm(unrollK), RDX)
	Label(id("tailloop"))
	CMPQ(RCX, RDX)
	JGE(LabelRef(id("store")))
	f.step(rows, panels, 0, acc, spare)
	for p := range panels {
		ADDQ(Imm(panelBytes), panelRegs[p])
	}
	INCQ(RCX)
	JMP(LabelRef(id("tailloop")))

	Label(id("store"))
	f.eachC(rows, panels, spare, id("save"), func(r, v int, at Mem, mask Op) {
		switch {
		case mask == nil:
			VMOVUPS(acc(r, v), at)
		case f.wide:
			VMOVUPS(acc(r, v), mask, at)
		default:
			VMASKMOVPS(acc(r, v), mask, at)
		}
	})
	// eachC left the pointer of the last C row in RBX.
	if f.gather {
		ADDQ(Imm(uint64(8*rows)), f.aCur)
		ADDQ(Imm(uint64(8*rows)), f.cCur)
	} else {
		ADDQ(param("ldc"), RBX)
		MOVQ(RBX, f.cCur)
	}
}

// zero clears a register; writing the low half clears the rest, and Z16 and above have no VEX form.
func (f *gemmFunc) zero(r VecPhysical) {
	if f.wide {
		VPXORD(r, r, r)
	} else {
		VXORPS(r, r, r)
	}
}

// loadPointers fills the row and panel registers, and steps aCur in the strided form, where the next row is known here.
func (f *gemmFunc) loadPointers(rows, panels int) {
	MOVQ(f.aCur, RBX)
	for r := range rows {
		if f.gather {
			MOVQ(Mem{Base: RBX, Disp: 8 * r}, rowRegs[r])
			ADDQ(param("aoff"), rowRegs[r])
		} else {
			MOVQ(RBX, rowRegs[r])
			ADDQ(param("lda"), RBX)
		}
	}
	if !f.gather {
		MOVQ(RBX, f.aCur)
	}
	MOVQ(param("b"), panelRegs[0])
	for p := 1; p < panels; p++ {
		MOVQ(panelRegs[p-1], panelRegs[p])
		ADDQ(param("bstride"), panelRegs[p])
	}
}

// step is one k: every accumulator gets one fused multiply-add.
func (f *gemmFunc) step(rows, panels, u int, acc func(r, v int) VecPhysical, spare []VecPhysical) {
	nv := panels * f.vecs
	bAt := func(v int) Mem {
		return Mem{Base: panelRegs[v/f.vecs], Disp: panelBytes*u + 32*(v%f.vecs)}
	}
	aAt := func(r int) Mem { return Mem{Base: rowRegs[r], Index: RCX, Scale: 4, Disp: 4 * u} }
	switch {
	case rows == 1: // B is used once: straight from memory
		VBROADCASTSS(aAt(0), spare[0])
		for v := range nv {
			VFMADD231PS(bAt(v), spare[0], acc(0, v))
		}
	case nv+2 <= len(spare): // B stays in registers, rows alternate between two
		for v := range nv {
			VMOVUPS(bAt(v), spare[v])
		}
		temps := min(len(spare)-nv, 4)
		for r := range rows {
			t := spare[nv+r%temps]
			VBROADCASTSS(aAt(r), t)
			for v := range nv {
				VFMADD231PS(spare[v], t, acc(r, v))
			}
		}
	default: // rows stay in registers, B passes through one
		for r := range rows {
			VBROADCASTSS(aAt(r), spare[r])
		}
		for v := range nv {
			t := spare[rows+v%(len(spare)-rows)]
			VMOVUPS(bAt(v), t)
			for r := range rows {
				VFMADD231PS(t, spare[r], acc(r, v))
			}
		}
	}
}

// eachC visits the C elements of a tile: whole vectors if all columns are valid, under masks otherwise. It leaves the
// pointer of the last row in RBX and uses RCX, and in the AVX2 form the last two spare registers.
func (f *gemmFunc) eachC(rows, panels int, spare []VecPhysical, label string, visit func(r, v int, at Mem, mask Op)) {
	walk := func(maskOf func(v int) Op, vecs int) {
		for r := range rows {
			switch {
			case f.gather:
				if r == 0 {
					MOVQ(f.cCur, RCX)
				}
				MOVQ(Mem{Base: RCX, Disp: 8 * r}, RBX)
				ADDQ(param("coff"), RBX)
			case r == 0:
				MOVQ(f.cCur, RBX)
			default:
				ADDQ(param("ldc"), RBX)
			}
			for v := range vecs {
				at := Mem{Base: RBX, Disp: panelBytes*(v/f.vecs) + 32*(v%f.vecs)}
				visit(r, v, at, maskOf(v))
			}
		}
	}
	none := func(int) Op { return nil }
	if f.wide {
		walk(func(v int) Op { return []Op{K1, K2}[v] }, panels)
		return
	}
	if panels > 1 {
		walk(none, 2*panels)
		return
	}
	// One panel, whole or (vecs = 1) its left half.
	left, right := spare[len(spare)-2], spare[len(spare)-1]
	CMPQ(param("n"), Imm(uint64(8*f.vecs)))
	JL(LabelRef(label + "_masked"))
	walk(none, f.vecs)
	JMP(LabelRef(label + "_end"))
	Label(label + "_masked")
	MOVQ(U32(16), RCX)
	SUBQ(param("n"), RCX)
	LEAQ(f.mask, RBX)
	VMOVUPS(Mem{Base: RBX, Index: RCX, Scale: 4}, left)
	if f.vecs == 2 {
		VMOVUPS(Mem{Base: RBX, Index: RCX, Scale: 4, Disp: 32}, right)
	}
	walk(func(v int) Op { return []Op{left, right}[v] }, f.vecs)
	Label(label + "_end")
}
