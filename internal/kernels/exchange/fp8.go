package exchange

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/par"
	"github.com/weftgo/weft/internal/simd"
)

// Quantiser narrows rows to e4m3 with one scale per 128 values. Like Partials it keeps the arguments of the call in
// progress.
type Quantiser struct {
	q, scales, x comm.Buffer
	body         func(lo, hi int)
}

// Quantise writes q [numRows, hidden] (e4m3) and scales [numRows, ceil(hidden/128)] (fp32) so that x is close to q times
// scale. A group's scale is its largest magnitude / 448, or 1 if that is zero (all zeros, or too small to divide); values are
// divided by it and rounded to nearest even. A NaN stays a NaN of its own value; an infinity makes its whole group NaN.
func (z *Quantiser) Quantise(q, scales, x comm.Buffer) {
	if z.body == nil {
		z.body = z.rows
	}
	z.q, z.scales, z.x = q, scales, x
	par.For(x.Rows(), grain(x.Cols()*16), z.body)
	*z = Quantiser{body: z.body}
}

func (z *Quantiser) rows(lo, hi int) {
	var buf [ep.ScaleGroup]float32
	hidden := z.x.Cols()
	for i := lo; i < hi; i++ {
		q, scales := comm.Row[dtype.E4M3](z.q, i), comm.Row[float32](z.scales, i)
		for g := range scales {
			c := g * ep.ScaleGroup
			x := buf[:min(ep.ScaleGroup, hidden-c)]
			load(x, z.x, i, c)
			scales[g] = scaleOf(x)
			for j, v := range x {
				q[c+j] = dtype.ToE4M3(v / scales[g])
			}
		}
	}
}

// scaleOf returns the largest magnitude of x that is not NaN, over the largest e4m3 value.
func scaleOf(x []float32) float32 {
	most := simd.MaxAbs(x)
	if most != most { // some are NaN: the others decide
		most = 0
		for _, v := range x {
			if a := max(v, -v); a > most {
				most = a
			}
		}
	}
	if s := most / dtype.MaxE4M3; s > 0 {
		return s
	}
	return 1
}
