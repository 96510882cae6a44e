package model

import "math"

// rope is a table of rotary angles: cos and sin [positions, headDim/2].
type rope struct {
	half     int
	cos, sin []float32
}

// newRope makes the table for a number of positions. As in the reference, inverse frequencies and angles are rounded to float32.
func newRope(headDim, positions int, theta float64) rope {
	r := rope{half: headDim / 2}
	r.cos = make([]float32, positions*r.half)
	r.sin = make([]float32, positions*r.half)
	for i := range r.half {
		inv := float32(1 / math.Pow(theta, float64(2*i)/float64(headDim)))
		for p := range positions {
			s, c := math.Sincos(float64(float32(p) * inv))
			r.cos[p*r.half+i], r.sin[p*r.half+i] = float32(c), float32(s)
		}
	}
	return r
}

// at returns the cosines and sines of a position, [headDim/2] each.
func (r *rope) at(p int) (cos, sin []float32) {
	return r.cos[p*r.half : (p+1)*r.half], r.sin[p*r.half : (p+1)*r.half]
}
