package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// A gemmISA is one instruction set's shape of the micro-kernel.
type gemmISA struct {
	name    string
	maxRows int  // rows of the largest tile
	vecs    int  // vector registers per panel of 16 columns
	wide    bool // 512-bit registers and mask registers
	regs    []VecPhysical
}

// panelBytes is the width of a panel row: 16 float32.
const panelBytes = 64

// unrollK is how many steps of k one pass of the inner loop takes.
const unrollK = 4

var (
	rowRegs   = []GPPhysical{R8, R9, R10, R11, R12, R13, R15, RDI}
	panelRegs = []GPPhysical{RAX, RSI, R11, R12} // four panels are used with one row only
)

func generateGemm() {
	ymm := []VecPhysical{Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11, Y12, Y13, Y14, Y15}
	zmm := []VecPhysical{
		Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15,
		Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31,
	}
	mask := GLOBL("columnMask", NOPTR|RODATA)
	for i := range 32 {
		v := U32(0)
		if i < 16 {
			v = 0xffffffff
		}
		DATA(4*i, v)
	}
	for _, gather := range []bool{false, true} {
		emitGemm(gemmISA{"AVX2", 6, 2, false, ymm}, gather, mask)
		emitGemm(gemmISA{"AVX512", 8, 1, true, zmm}, gather, mask)
	}
}

// A gemmFunc holds what the pieces of one function share.
type gemmFunc struct {
	gemmISA
	gather bool
	mask   Mem
	prefix string
	// Cursors of the row loop, on the stack frame.
	aCur, cCur, rowsLeft Mem
}

func (f *gemmFunc) label(format string, args ...any) string {
	return f.prefix + "_" + fmt.Sprintf(format, args...)
}

// param is the stack slot of an argument.
func param(name string) Mem {
	b, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// emitGemm writes one function: for each panel (or group of panels), for each tile of rows, one chain of FMAs over k.
func emitGemm(isa gemmISA, gather bool, mask Mem) {
	f := &gemmFunc{gemmISA: isa, gather: gather, mask: mask}
	if gather {
		f.prefix = "gather" + isa.name
		TEXT(f.prefix, NOSPLIT, "func(a **float32, aoff int, c **float32, coff int, m int, b *float32, bstride int, k int, n int, accumulate bool)")
	} else {
		f.prefix = "strided" + isa.name
		TEXT(f.prefix, NOSPLIT, "func(a *float32, lda int, c *float32, ldc int, m int, b *float32, bstride int, k int, n int, accumulate bool)")
	}
	Pragma("noescape")
	frame := AllocLocal(24)
	f.aCur, f.cCur, f.rowsLeft = frame, frame.Offset(8), frame.Offset(16)

	Label(f.label("panel"))
	CMPQ(param("n"), Imm(0))
	JLE(LabelRef(f.label("done")))
	f.move("a", f.aCur)
	f.move("c", f.cCur)
	f.move("m", f.rowsLeft)
	if f.wide {
		f.columnMasks()
		CMPQ(param("n"), Imm(16))
		JLE(LabelRef(f.label("single")))
		f.rowLoop(2)
		f.advance(2)
		Label(f.label("single"))
	} else {
		f.fewRows()
		f.halfPanel()
	}
	f.rowLoop(1)
	f.advance(1)
	Label(f.label("done"))
	VZEROUPPER()
	RET()
}

// fewRows takes several panels at once for tiles of one to three rows, whose chains would leave the FMA units idle.
func (f *gemmFunc) fewRows() {
	for _, g := range []struct{ rows, panels int }{{1, 4}, {1, 2}, {2, 2}, {3, 2}} {
		skip := f.label("not%dx%d", g.rows, 16*g.panels)
		CMPQ(f.rowsLeft, Imm(uint64(g.rows)))
		JNE(LabelRef(skip))
		CMPQ(param("n"), Imm(uint64(16*g.panels)))
		JL(LabelRef(skip))
		f.tile(g.rows, g.panels)
		f.advance(g.panels)
		Label(skip)
	}
}

// halfPanel computes the left half of the last panel only, if no more of it is valid.
func (f *gemmFunc) halfPanel() {
	CMPQ(param("n"), Imm(8))
	JG(LabelRef(f.label("whole")))
	h := *f
	h.vecs, h.maxRows = 1, 8
	h.rowLoop(1)
	JMP(LabelRef(f.label("done")))
	Label(f.label("whole"))
}

func (f *gemmFunc) move(from string, to Mem) {
	MOVQ(param(from), RBX)
	MOVQ(RBX, to)
}

// columnMasks sets K1 and K2 to the valid columns of the next two panels.
func (f *gemmFunc) columnMasks() {
	MOVQ(param("n"), RCX)
	MOVQ(U32(32), RBX)
	CMPQ(RCX, RBX)
	CMOVQGT(RBX, RCX)
	MOVQ(U32(1), RBX)
	SHLQ(CL, RBX)
	DECQ(RBX)
	KMOVW(EBX, K1)
	SHRQ(Imm(16), RBX)
	KMOVW(EBX, K2)
}

// advance steps past the panels just done.
func (f *gemmFunc) advance(panels int) {
	MOVQ(param("bstride"), RBX)
	if panels > 1 {
		SHLQ(Imm(uint64(panels/2)), RBX)
	}
	ADDQ(RBX, param("b"))
	SUBQ(Imm(uint64(16*panels)), param("n"))
	if f.gather {
		ADDQ(U32(uint32(panelBytes*panels)), param("coff"))
	} else {
		ADDQ(U32(uint32(panelBytes*panels)), param("c"))
	}
	JMP(LabelRef(f.label("panel")))
}

// rowLoop covers all rows with tiles. Between one and two tiles' worth of rows are halved, since a tile of one or two
// rows would run at the latency of its chains.
func (f *gemmFunc) rowLoop(panels int) {
	id := func(s string, args ...any) string {
		return f.label("v%d_"+s, append([]any{panels * f.vecs}, args...)...)
	}
	Label(id("rows"))
	MOVQ(f.rowsLeft, RBX)
	CMPQ(RBX, Imm(0))
	JLE(LabelRef(id("end")))
	CMPQ(RBX, Imm(uint64(2*f.maxRows)))
	JGE(LabelRef(id("tile%d", f.maxRows)))
	CMPQ(RBX, Imm(uint64(f.maxRows)))
	JLE(LabelRef(id("pick")))
	INCQ(RBX)
	SHRQ(Imm(1), RBX)
	Label(id("pick"))
	for rows := 1; rows < f.maxRows; rows++ {
		CMPQ(RBX, Imm(uint64(rows)))
		JEQ(LabelRef(id("tile%d", rows)))
	}
	for rows := f.maxRows; rows > 0; rows-- {
		Label(id("tile%d", rows))
		f.tile(rows, panels)
		SUBQ(Imm(uint64(rows)), f.rowsLeft)
		JMP(LabelRef(id("rows")))
	}
	Label(id("end"))
}
