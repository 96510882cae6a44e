package moe

import "math"

type packed struct {
	n, k int
	w    []float32
}

func pack(w []float32, n, k, ldw int) *packed {
	p := &packed{n: n, k: k, w: make([]float32, n*k)}
	for i := range n {
		copy(p.w[i*k:(i+1)*k], w[i*ldw:])
	}
	return p
}

func (p *packed) K() int { return p.k }

func (p *packed) Mul(c []float32, ldc int, a []float32, lda, m int, accumulate bool) {
	for i := range m {
		p.row(c[i*ldc:], a[i*lda:i*lda+p.k], accumulate)
	}
}

func (p *packed) MulRows(c []float32, ldc int, a []float32, lda int, rows []int32, accumulate bool) {
	for i, r := range rows {
		p.row(c[i*ldc:], a[int(r)*lda:int(r)*lda+p.k], accumulate)
	}
}

func (p *packed) row(c, a []float32, accumulate bool) {
	for j := range p.n {
		var s float32
		if accumulate {
			s = c[j]
		}
		for i, w := range p.w[j*p.k : (j+1)*p.k] {
			s += a[i] * w
		}
		c[j] = s
	}
}

func swiglu(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = g / (1 + float32(math.Exp(-float64(g)))) * up[i]
	}
}

func axpy(dst []float32, a float32, x []float32) {
	for i, v := range x {
		dst[i] += float32(a * v)
	}
}

func add(dst, x []float32) {
	for i, v := range x {
		dst[i] += v
	}
}
