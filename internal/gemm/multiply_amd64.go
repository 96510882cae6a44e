package gemm

import (
	"unsafe"

	"github.com/weftgo/weft/internal/race"
	"github.com/weftgo/weft/internal/simd"
)

// multiply runs the kernel of the level in use. The slices were checked by the caller: every row and panel that the
// assembly touches lies inside them.
func (v *view) multiply() {
	level := simd.Current()
	if level == simd.Go {
		v.multiplyGo()
		return
	}
	v.report()
	if v.rows != nil {
		v.multiplyGathered(level)
		return
	}
	if v.m == 0 || v.n == 0 {
		return
	}
	c := unsafe.SliceData(v.c)
	var a, b *float32
	if v.k > 0 {
		a, b = &v.a[v.k0], &v.panels[0]
	}
	if level == simd.AVX512 {
		stridedAVX512(a, 4*v.lda, c, 4*v.ldc, v.m, b, 4*v.stride, v.k, v.n, v.accumulate)
	} else {
		stridedAVX2(a, 4*v.lda, c, 4*v.ldc, v.m, b, 4*v.stride, v.k, v.n, v.accumulate)
	}
}

// multiplyGathered lists the pointers of the rows, leaving out the zero ones, and runs the kernel on the lists.
func (v *view) multiplyGathered(level simd.Level) {
	var aRows, cRows [maxBlockRows]*float32
	numRows := 0
	for i, r := range v.rows {
		if r < 0 {
			if !v.accumulate {
				clear(v.cRow(i))
			}
			continue
		}
		if v.k > 0 {
			aRows[numRows] = &v.a[int(r)*v.lda+v.k0]
		}
		cRows[numRows] = &v.c[i*v.ldc]
		numRows++
	}
	if numRows == 0 {
		return
	}
	var b *float32
	if v.k > 0 {
		b = &v.panels[0]
	}
	if level == simd.AVX512 {
		gatherAVX512(&aRows[0], 0, &cRows[0], 0, numRows, b, 4*v.stride, v.k, v.n, v.accumulate)
	} else {
		gatherAVX2(&aRows[0], 0, &cRows[0], 0, numRows, b, 4*v.stride, v.k, v.n, v.accumulate)
	}
}

// report tells the race detector what a kernel reads and writes.
func (v *view) report() {
	if !race.Enabled || v.n == 0 {
		return
	}
	for i := range v.m {
		c := v.cRow(i)
		a := v.aRow(i)
		if v.accumulate && v.rows != nil && v.rows[i] < 0 {
			continue
		}
		if v.accumulate {
			race.ReadRange(unsafe.Pointer(unsafe.SliceData(c)), 4*len(c))
		}
		race.WriteRange(unsafe.Pointer(unsafe.SliceData(c)), 4*len(c))
		race.ReadRange(unsafe.Pointer(unsafe.SliceData(a)), 4*len(a))
	}
	for col := 0; col < v.n; col += PanelWidth {
		b := v.panel(col)
		race.ReadRange(unsafe.Pointer(unsafe.SliceData(b)), 4*len(b))
	}
}
