package gemm

// A view is what one kernel call sees: m rows of A from column k0 on, k of them, against consecutive panels that lie stride
// values apart.
type view struct {
	c          []float32 // [m, n], rows ldc apart
	ldc        int
	a          []float32 // [m, k0+k], rows lda apart; or gathered through rows
	lda        int
	rows       []int32 // nil for consecutive rows
	m, n       int
	panels     []float32
	stride     int // distance of two panels
	k0, k      int
	accumulate bool
}

// aRow returns the k values of row i that this view uses, or nil for a zero row.
func (v *view) aRow(i int) []float32 {
	if v.rows != nil {
		if v.rows[i] < 0 {
			return nil
		}
		i = int(v.rows[i])
	}
	lo := i*v.lda + v.k0
	return v.a[lo : lo+v.k : lo+v.k]
}

// cRow returns the n values of row i of C.
func (v *view) cRow(i int) []float32 { return v.c[i*v.ldc : i*v.ldc+v.n : i*v.ldc+v.n] }

// panel returns the k rows of the panel that holds column col, which is a multiple of the panel width.
func (v *view) panel(col int) []float32 {
	lo := col / PanelWidth * v.stride
	return v.panels[lo : lo+v.k*PanelWidth]
}

// multiplyGo is the portable kernel: each product is rounded before it is added.
func (v *view) multiplyGo() {
	for col := 0; col < v.n; col += PanelWidth {
		b := v.panel(col)
		numCols := min(PanelWidth, v.n-col)
		for i := range v.m {
			c := v.cRow(i)[col : col+numCols]
			if v.rows != nil && v.rows[i] < 0 {
				if !v.accumulate {
					clear(c)
				}
				continue
			}
			var acc [PanelWidth]float32
			if v.accumulate {
				copy(acc[:], c)
			}
			for k, x := range v.aRow(i) {
				row := (*[PanelWidth]float32)(b[k*PanelWidth:])
				for j, w := range row {
					acc[j] += float32(x * w)
				}
			}
			copy(c, acc[:])
		}
	}
}
