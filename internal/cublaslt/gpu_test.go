package cublaslt

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/gputest"
)

type rig struct {
	t testing.TB
	d *cuda.Device
	s *cuda.Stream
	h *Handle
}

func newRig(t testing.TB) *rig {
	d := gputest.Device(t)
	gputest.NeedHardware(t, "libcublasLt does not run on an emulated one")
	gputest.Library(t, Init())
	before := d.Alive()
	s, err := d.NewStream(0)
	require.NoError(t, err)
	h, err := New(d, 0)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, h.Close())
		require.NoError(t, s.Close())
		require.Equal(t, before, d.Alive(), "what was allocated is freed")
	})
	return &rig{t, d, s, h}
}

// put encodes x as a type and copies it to new device memory.
func (r *rig) put(x []float32, typ dtype.DType) uintptr {
	r.t.Helper()
	var raw []byte
	switch typ {
	case dtype.F32:
		raw = cuda.Bytes(x)
	default:
		half := make([]uint16, len(x))
		for i, v := range x {
			half[i] = encode(v, typ)
		}
		raw = cuda.Bytes(half)
	}
	addr, err := r.d.Alloc(len(raw))
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, r.d.Free(addr)) })
	require.NoError(r.t, r.s.Upload(addr, raw))
	return addr
}

func (r *rig) get(addr uintptr, n int, typ dtype.DType) []float32 {
	r.t.Helper()
	x := make([]float32, n)
	if typ == dtype.F32 {
		require.NoError(r.t, r.s.Download(cuda.Bytes(x), addr))
		return x
	}
	half := make([]uint16, n)
	require.NoError(r.t, r.s.Download(cuda.Bytes(half), addr))
	for i, h := range half {
		x[i] = decode(h, typ)
	}
	return x
}

// encode and decode are right for the small integers and the NaN of these tests.
func encode(v float32, typ dtype.DType) uint16 {
	if typ == dtype.BF16 {
		return uint16(math.Float32bits(v) >> 16)
	}
	return uint16(dtype.ToFloat16(v))
}

func decode(h uint16, typ dtype.DType) float32 {
	if typ == dtype.BF16 {
		return math.Float32frombits(uint32(h) << 16)
	}
	return dtype.Float16(h).Float32()
}

// Inputs of -1, 0 and 1 have exact sums in every type, so the check is ==.
func TestMatmulExact(t *testing.T) {
	r := newRig(t)
	rng := rand.New(rand.NewPCG(1, 2))
	small := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.IntN(3) - 1)
		}
		return x
	}
	for _, typ := range []dtype.DType{dtype.BF16, dtype.F16, dtype.F32} {
		for _, out := range []dtype.DType{typ, dtype.F32} {
			for _, p := range []Problem{
				{M: 1, N: 64, K: 64, TransB: true}, {M: 7, N: 128, K: 256, TransB: true}, {M: 64, N: 8, K: 16},
				{M: 129, N: 96, K: 240, TransB: true, LDA: 256, LDB: 248, LDD: 104}, {M: 33, N: 64, K: 128, LDB: 72},
				{M: 5, N: 32, K: 64, TransB: true, Batch: 3, StrideA: 5 * 64, StrideB: 32 * 64, StrideD: 5*32 + 32},
			} {
				p.Type, p.Out = typ, out
				t.Run(fmt.Sprintf("%v-%v/%dx%dx%d/b%v", typ, out, p.M, p.N, p.K, p.TransB), func(t *testing.T) { r.checkExact(t, p, small) })
			}
		}
	}
}

func (r *rig) checkExact(t *testing.T, p Problem, small func(int) []float32) {
	q := p.dense()
	rowsB := q.K
	if q.TransB {
		rowsB = q.N
	}
	a, b := small((q.Batch-1)*q.StrideA+q.M*q.LDA), small((q.Batch-1)*q.StrideB+rowsB*q.LDB)
	want := make([]float32, (q.Batch-1)*q.StrideD+q.M*q.LDD)
	for i := range want {
		want[i] = 7 // what lies between rows must stay
	}
	poison := append([]float32(nil), want...)
	for batch := range q.Batch {
		for i := range q.M {
			for j := range q.N {
				var sum float32
				for k := range q.K {
					y := k*q.LDB + j
					if q.TransB {
						y = j*q.LDB + k
					}
					sum += a[batch*q.StrideA+i*q.LDA+k] * b[batch*q.StrideB+y]
				}
				at := batch*q.StrideD + i*q.LDD + j
				want[at], poison[at] = sum, float32(math.NaN())
			}
		}
	}
	da, db, dd := r.put(a, p.Type), r.put(b, p.Type), r.put(poison, p.Out)
	require.NoError(t, r.h.Matmul(r.s, p, dd, da, db, 1, 0))
	require.Equal(t, want, r.get(dd, len(want), p.Out))
	require.NoError(t, r.h.Matmul(r.s, p, dd, da, db, 2, 1)) // D = 2AB + D
	for batch := range q.Batch {
		for i := range q.M {
			for j := range q.N {
				want[batch*q.StrideD+i*q.LDD+j] *= 3
			}
		}
	}
	require.Equal(t, want, r.get(dd, len(want), p.Out))
}

// A bucket is planned once, whatever M inside it; a planned product allocates nothing in Go.
func TestMatmulPlansOncePerBucket(t *testing.T) {
	r := newRig(t)
	p := Problem{M: 64, N: 64, K: 64, TransB: true, Type: dtype.BF16, Out: dtype.BF16}
	require.NoError(t, r.h.Warm(r.s, p))
	require.Len(t, r.h.plans, 4) // 8, 16, 32, 64
	one := make([]float32, 64*64)
	for i := range one {
		one[i] = 1
	}
	a, b, d := r.put(one, p.Type), r.put(one, p.Type), r.put(one, p.Type)
	for p.M = 1; p.M <= 64; p.M++ {
		require.NoError(t, r.s.Fill(d, 0, 64*64*2))
		require.NoError(t, r.h.Matmul(r.s, p, d, a, b, 1, 0))
		got := r.get(d, 64*64, p.Type)
		for i, v := range got {
			if i < p.M*64 {
				require.Equal(t, float32(64), v, "M %d, element %d", p.M, i)
			} else {
				require.Zero(t, v, "M %d: row %d is past the end", p.M, i/64)
			}
		}
	}
	require.Len(t, r.h.plans, 4)
	p.M = 40
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := r.h.Matmul(r.s, p, d, a, b, 1, 0); err != nil {
			t.Error(err)
		}
	}))
	p.M = 0
	require.NoError(t, r.h.Matmul(r.s, p, d, a, b, 1, 0))
}

// The library's fp32 algorithm for 8 rows refuses 1 row. After Warm every M has an algorithm, and none is planned later.
func TestWarmCoversRefusedRows(t *testing.T) {
	r := newRig(t)
	one := make([]float32, 64*64)
	for i := range one {
		one[i] = 1
	}
	for _, typ := range []dtype.DType{dtype.F32, dtype.BF16} {
		p := Problem{M: 40, N: 64, K: 64, TransB: true, Type: typ, Out: typ}
		require.NoError(t, r.h.Warm(r.s, p))
		count := func() (n int) {
			for _, set := range r.h.plans {
				n += 1 + len(set.exact)
			}
			return n
		}
		planned := count()
		t.Logf("%v: %d plans in %d buckets", typ, planned, len(r.h.plans))
		a, b, d := r.put(one, typ), r.put(one, typ), r.put(one, typ)
		for p.M = 1; p.M <= 64; p.M++ {
			require.NoError(t, r.s.Fill(d, 0xff, p.M*64*int(typ.Size())))
			require.NoError(t, r.h.Matmul(r.s, p, d, a, b, 1, 0))
			for i, v := range r.get(d, p.M*64, typ) {
				require.Equal(t, float32(64), v, "%v, M %d, element %d", typ, p.M, i)
			}
		}
		require.Equal(t, planned, count(), "no plan after Warm")
	}
}

// Random inputs at a size that fills the GPU: the rate, and the error against fp64 on sampled elements.
func TestMatmulRate(t *testing.T) {
	if testing.Short() {
		t.Skip("a measurement")
	}
	r := newRig(t)
	const n = 8192
	rng := rand.New(rand.NewPCG(3, 4))
	a, b := make([]uint16, n*n), make([]uint16, n*n)
	for i := range a {
		a[i], b[i] = encode(rng.Float32()-0.5, dtype.BF16), encode(rng.Float32()-0.5, dtype.BF16)
	}
	addr := make([]uintptr, 3)
	for i := range addr {
		var err error
		addr[i], err = r.d.Alloc(2 * n * n)
		require.NoError(t, err)
		defer func() { require.NoError(t, r.d.Free(addr[i])) }()
	}
	require.NoError(t, r.s.Upload(addr[1], cuda.Bytes(a)))
	require.NoError(t, r.s.Upload(addr[2], cuda.Bytes(b)))
	p := Problem{M: n, N: n, K: n, TransB: true, Type: dtype.BF16, Out: dtype.BF16}
	start, err := r.d.NewEvent(true)
	require.NoError(t, err)
	end, err := r.d.NewEvent(true)
	require.NoError(t, err)
	best := time.Hour
	for range 10 {
		require.NoError(t, start.Record(r.s))
		require.NoError(t, r.h.Matmul(r.s, p, addr[0], addr[1], addr[2], 1, 0))
		require.NoError(t, end.Record(r.s))
		require.NoError(t, end.Synchronize())
		took, err := end.Since(start)
		require.NoError(t, err)
		best = min(best, took)
	}
	t.Logf("RESULT cublaslt_bf16_8192 %.0f TFLOP/s (best of 10, %v)", 2*float64(n)*n*n/best.Seconds()/1e12, best)
	row := make([]uint16, n)
	for _, i := range []int{0, 4095, 8191} {
		require.NoError(t, r.s.Download(cuda.Bytes(row), addr[0]+uintptr(2*n*i)))
		for _, j := range []int{0, 1, 4096, 8191} {
			var sum float64
			for k := range n {
				sum += float64(decode(a[i*n+k], dtype.BF16)) * float64(decode(b[j*n+k], dtype.BF16))
			}
			require.InDelta(t, sum, float64(decode(row[j], dtype.BF16)), 0.005*math.Abs(sum)+0.01, "[%d, %d]", i, j)
		}
	}
}
