package gemm

import "fmt"

// PanelWidth is the number of columns in a panel.
const PanelWidth = 16

// A Packed is a weight [n, k] in panel layout: [ceil(n/16)][k][16], zero padded. It is immutable and may be used from
// many goroutines at once.
type Packed struct {
	n, k int
	data []float32
}

// Pack copies the weight w, n rows of k values at a distance of ldw, into panels. It panics if w is too short.
func Pack(w []float32, n, k, ldw int) *Packed {
	checkMatrix("w", len(w), n, k, ldw)
	p := &Packed{n: n, k: k, data: make([]float32, (n+PanelWidth-1)/PanelWidth*k*PanelWidth)}
	if k == 0 {
		return p
	}
	for col := range n {
		src := w[col*ldw:]
		dst := p.data[col/PanelWidth*k*PanelWidth+col%PanelWidth:]
		for i := range k {
			dst[i*PanelWidth] = src[i]
		}
	}
	return p
}

// N returns the number of output columns.
func (p *Packed) N() int { return p.n }

// K returns the length of the products.
func (p *Packed) K() int { return p.k }

func (p *Packed) numPanels() int { return (p.n + PanelWidth - 1) / PanelWidth }

// NumBytes returns the memory that the panels take.
func (p *Packed) NumBytes() int { return 4 * len(p.data) }

// checkMatrix panics unless a slice of length have holds rows x cols at distance ld.
func checkMatrix(name string, have, rows, cols, ld int) {
	if rows < 0 || cols < 0 {
		panic(fmt.Sprintf("gemm: %s has shape [%d, %d]", name, rows, cols))
	}
	if rows == 0 || cols == 0 {
		return
	}
	if ld < cols && rows > 1 {
		panic(fmt.Sprintf("gemm: %s has rows of %d values at a distance of %d", name, cols, ld))
	}
	if need := (rows-1)*ld + cols; have < need {
		panic(fmt.Sprintf("gemm: %s holds %d values, [%d, %d] at distance %d needs %d", name, have, rows, cols, ld, need))
	}
}
