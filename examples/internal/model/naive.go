package model

import (
	"math"

	"github.com/weftgo/weft/internal/par"
)

func dot(a, b []float32) float32 {
	var s0, s1, s2, s3 float32
	for len(a) >= 4 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		a = a[4:]
		b = b[4:]
	}
	for i := range a {
		s0 += a[i] * b[i]
	}
	return s0 + s1 + s2 + s3
}

// ---- naive kernels

type packed struct {
	w    []float32
	n, k int
}

func pack(w []float32, n, k, ldw int) *packed {
	return &packed{append([]float32(nil), w[:n*k]...), n, k}
}

func (p *packed) Mul(c []float32, ldc int, a []float32, lda, m int, acc bool) {
	par.For(m, 16, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			for j := range p.n {
				s := dot(a[i*lda:i*lda+p.k], p.w[j*p.k:(j+1)*p.k])
				if acc {
					s += c[i*ldc+j]
				}
				c[i*ldc+j] = s
			}
		}
	})
}

// panels: C[m,n] (+)= A[m,k] x panels [n/16][k][16], panels bstride floats apart
func mulPanels(c []float32, ldc int, a []float32, lda, m int, b []float32, bstride, k, n int, acc bool) {
	for i := range m {
		for j := 0; j < n; j += 16 {
			p := b[j/16*bstride:]
			for jj := range min(16, n-j) {
				s := float32(0)
				if acc {
					s = c[i*ldc+j+jj]
				}
				for kk := range k {
					s += a[i*lda+kk] * p[kk*16+jj]
				}
				c[i*ldc+j+jj] = s
			}
		}
	}
}

func rmsNorm(dst, src, w []float32, eps float32) {
	var s float32
	for _, v := range src {
		s += v * v
	}
	r := 1 / float32(math.Sqrt(float64(s/float32(len(src))+eps)))
	for i, v := range src {
		dst[i] = v * r * w[i]
	}
}

func addTo(dst, src []float32) {
	for i := range dst {
		dst[i] += src[i]
	}
}

func expSum(x []float32, mx float32) float32 {
	var s float32
	for i := range x {
		x[i] = float32(math.Exp(float64(x[i] - mx)))
		s += x[i]
	}
	return s
}

func maxOf(x []float32) float32 {
	m := x[0]
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

func scaleBy(x []float32, f float32) {
	for i := range x {
		x[i] *= f
	}
}

// rotate: halves
func rotate(dst, x, cos, sin []float32) {
	n := len(x) / 2
	for i := range n {
		a, b := x[i], x[i+n]
		dst[i] = a*cos[i] - b*sin[i]
		dst[i+n] = b*cos[i] + a*sin[i]
	}
}

func swiGLU(dst, g, u []float32) {
	for i := range dst {
		dst[i] = g[i] / (1 + float32(math.Exp(float64(-g[i])))) * u[i]
	}
}
func exp1(x float32) float32 { return float32(math.Exp(float64(x))) }
