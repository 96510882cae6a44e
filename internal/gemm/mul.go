package gemm

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/weftgo/weft/internal/par"
)

// Blocking. A block of A (maxBlockRows x maxBlockK) stays in the second-level cache while the panels pass over it, and a
// panel of B (maxBlockK x 16) stays in the first-level cache while the rows of the block pass over it.
const (
	maxBlockRows = 96
	maxBlockK    = 384
	// A product is spread over cores in units of at least minUnitOps multiply-adds, some 15 microseconds.
	minUnitOps = 1 << 19
)

// Mul computes C[m, n] = A[m, k] · Bᵀ, or adds to C when accumulate is set. Rows of c and a lie ldc and lda apart; columns
// of c from n on are left alone. Large products are spread over idle cores. It panics if a slice is too short.
func (p *Packed) Mul(c []float32, ldc int, a []float32, lda, m int, accumulate bool) {
	checkMatrix("a", len(a), m, p.k, lda)
	p.run(product{p: p, c: c, ldc: ldc, a: a, lda: lda, m: m, accumulate: accumulate})
}

// MulRows is [Packed.Mul] with gathered rows: row i of A is a[rows[i]*lda:], read in place. Where rows[i] is negative the row is
// zero: the row of C is written as zeros, or left alone when accumulating. C has len(rows) rows.
func (p *Packed) MulRows(c []float32, ldc int, a []float32, lda int, rows []int32, accumulate bool) {
	for i, r := range rows {
		if r >= 0 && (int(r)*lda+p.k > len(a) || lda < 0) {
			panic(fmt.Sprintf("gemm: rows[%d] = %d at distance %d needs %d values of a, which has %d",
				i, r, lda, int(r)*lda+p.k, len(a)))
		}
	}
	if len(rows) == 0 {
		return
	}
	p.run(product{p: p, c: c, ldc: ldc, a: a, lda: lda, m: len(rows), rows: rows, accumulate: accumulate})
}

// A product is one call of Mul or MulRows, cut into units of rows x panels.
type product struct {
	p          *Packed
	c, a       []float32
	ldc, lda   int
	m          int
	rows       []int32 // nil for consecutive rows
	accumulate bool

	unitRows, unitPanels int
	numGroups            int // groups of unitPanels panels
}

// A spread is a product on its way over several cores. It is pooled with its function so that no call allocates.
type spread struct {
	product
	fn func(lo, hi int)
}

var spreads = sync.Pool{New: func() any {
	s := new(spread)
	s.fn = s.units
	return s
}}

// units computes the units [lo, hi); unit u is row block u / numGroups, panel group u % numGroups.
func (s *spread) units(lo, hi int) {
	numPanels := s.p.numPanels()
	for u := lo; u < hi; u++ {
		p0 := u % s.numGroups * s.unitPanels
		s.block(u/s.numGroups*s.unitRows, p0, min(p0+s.unitPanels, numPanels))
	}
}

func (p *Packed) run(x product) {
	checkMatrix("c", len(x.c), x.m, p.n, x.ldc)
	if x.m == 0 || p.n == 0 {
		return
	}
	numBlocks := x.cut()
	if numUnits := numBlocks * x.numGroups; numUnits > 1 && x.m*p.n*p.k >= 2*minUnitOps {
		s := spreads.Get().(*spread)
		s.product = x
		par.For(numUnits, 1, s.fn)
		s.product = product{}
		spreads.Put(s)
		return
	}
	for i := range numBlocks {
		x.block(i*x.unitRows, 0, p.numPanels())
	}
}

// cut chooses the units: blocks of equal height, and few rows are divided by panels. It returns the number of blocks.
func (x *product) cut() int {
	numBlocks := (x.m + maxBlockRows - 1) / maxBlockRows
	x.unitRows = (x.m + numBlocks - 1) / numBlocks
	if numBlocks > 1 {
		x.unitRows = (x.unitRows + 23) / 24 * 24 // whole tiles of 6 and of 8
		numBlocks = (x.m + x.unitRows - 1) / x.unitRows
	}
	numPanels := x.p.numPanels()
	groups := 1
	if want := min(x.m*x.p.n*x.p.k/minUnitOps, 4*runtime.GOMAXPROCS(0)); numBlocks < want {
		groups = min((want+numBlocks-1)/numBlocks, (numPanels+3)/4)
	}
	x.unitPanels = (numPanels + groups - 1) / groups
	x.unitPanels = (x.unitPanels + 3) / 4 * 4 // narrow tiles take up to four panels at once
	x.numGroups = (numPanels + x.unitPanels - 1) / x.unitPanels
	return numBlocks
}

// block computes the unit of rows from r0 on and panels [p0, p1).
func (x *product) block(r0, p0, p1 int) {
	p := x.p
	numRows := min(x.unitRows, x.m-r0)
	col := p0 * PanelWidth
	v := view{
		c: x.c[r0*x.ldc+col:], ldc: x.ldc, m: numRows,
		n: min(p1*PanelWidth, p.n) - col, stride: p.k * PanelWidth, accumulate: x.accumulate,
	}
	if x.rows == nil {
		v.a, v.lda = x.a[min(r0*x.lda, len(x.a)):], x.lda
	} else {
		v.a, v.lda, v.rows = x.a, x.lda, x.rows[r0:r0+numRows]
	}
	numK := max((p.k+maxBlockK-1)/maxBlockK, 1)
	kStep := (p.k + numK - 1) / numK
	kStep = max((kStep+3)/4*4, 4)
	for k0 := 0; k0 == 0 || k0 < p.k; k0 += kStep {
		v.panels = p.data[p0*v.stride+k0*PanelWidth:]
		v.k0, v.k = k0, min(kStep, p.k-k0)
		v.multiply()
		v.accumulate = true
	}
}
