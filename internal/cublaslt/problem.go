package cublaslt

import (
	"fmt"
	"math/bits"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// Problem is a matrix product D[M, N] = alpha · A[M, K] · B + beta · D, row-major.
type Problem struct {
	M, N, K  int
	TransB   bool        // B is [N, K], as weights are stored, instead of [K, N]
	Type     dtype.DType // of A and B: F32, BF16 or F16
	Out      dtype.DType // of D: F32, or Type
	LDA, LDB int         // elements from one row to the next; 0 means dense
	LDD      int

	Batch                     int // products in one call; 0 means 1
	StrideA, StrideB, StrideD int // elements from one product's matrix to the next one's
}

// dense fills in what was left zero.
func (p Problem) dense() Problem {
	inner := p.N
	if p.TransB {
		inner = p.K
	}
	set := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	set(&p.LDA, p.K)
	set(&p.LDB, inner)
	set(&p.LDD, p.N)
	set(&p.Batch, 1)
	return p
}

// Validate finds what is wrong with a Problem.
func (p Problem) Validate() error {
	p = p.dense()
	fail := func(format string, args ...any) error {
		return &Error{Text: fmt.Sprintf(format, args...), Code: comm.Invalid}
	}
	if p.M < 0 || p.N <= 0 || p.K <= 0 || p.Batch < 0 {
		return fail("[%d, %d] x [%d, %d], batch %d: sizes must be positive", p.M, p.K, p.K, p.N, p.Batch)
	}
	if _, ok := typeCode(p.Type); !ok || p.Out != p.Type && p.Out != dtype.F32 {
		return fail("%v x %v into %v: use f32, bf16 or f16, into the same type or f32", p.Type, p.Type, p.Out)
	}
	if inner := p.inner(); p.LDA < p.K || p.LDB < inner || p.LDD < p.N {
		return fail("row strides %d, %d, %d are shorter than rows of %d, %d, %d", p.LDA, p.LDB, p.LDD, p.K, inner, p.N)
	}
	return nil
}

func (p Problem) inner() int {
	if p.TransB {
		return p.K
	}
	return p.N
}

// typeCode returns the library's number of a type.
func typeCode(t dtype.DType) (int32, bool) {
	switch t {
	case dtype.F32:
		return 0, true
	case dtype.F16:
		return 2, true
	case dtype.BF16:
		return 14, true
	}
	return 0, false
}

// Bucket returns the M whose algorithm a product of m rows uses: the next power of two, at least 8.
func Bucket(m int) int { return max(8, 1<<bits.Len(uint(max(m, 1)-1))) }
