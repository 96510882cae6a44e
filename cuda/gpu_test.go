package cuda_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/internal/nvrtc"
)

// kernels are small ones for these tests. spin leaves after a deadline, so that no test can hang; deep's stack is beyond what a
// context begins with.
const kernels = `
typedef unsigned long long u64;
extern "C" __global__ void add(float *out, const float *a, const float *b, int n) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) out[i] = __fadd_rn(a[i], b[i]);
}
extern "C" __global__ void scale(float *out, const float *in, float by, int n) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) out[i] = __fmul_rn(in[i], by);
}
extern "C" __global__ void spin(volatile unsigned *flag, u64 nanoseconds) {
	u64 start, now;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
	do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (*flag == 0 && now - start < nanoseconds);
}
extern "C" __global__ void ranks(unsigned *out) {
	unsigned rank, size;
	asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
	asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
	if (threadIdx.x == 0) out[blockIdx.x] = 100 * size + rank;
}
extern "C" __global__ void big(unsigned *out) {
	extern __shared__ unsigned shared[];
	shared[threadIdx.x + 16384] = threadIdx.x;
	__syncthreads();
	out[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x + 16384];
}
extern "C" __global__ void nothing() {}
extern "C" __global__ void deep(unsigned *out) { volatile unsigned stack[700]; for (int i = 0; i < 700; i++) stack[i] = i; out[0] = stack[threadIdx.x]; }
__device__ unsigned answer = 42;
`

type rig struct {
	*cuda.Device
	t testing.TB
	s *cuda.Stream
	m *cuda.Module
}

// newRig returns a device with the kernels. When the test ends, all that it allocated must be freed.
func newRig(t testing.TB) *rig {
	t.Helper()
	d := gputest.Device(t)
	gputest.Library(t, nvrtc.Init())
	before := d.Alive()
	image, err := nvrtc.Cubin(nvrtc.Program{Name: "test.cu", Source: kernels, Arch: d.Info().Arch()})
	require.NoError(t, err)
	m, err := d.LoadModule(image)
	require.NoError(t, err)
	s, err := d.NewStream(0)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, m.Close())
		require.Equal(t, before, d.Alive(), "what was allocated is freed")
	})
	return &rig{d, t, s, m}
}

func (r *rig) function(name string) *cuda.Function {
	r.t.Helper()
	f, err := r.m.Function(name)
	require.NoError(r.t, err)
	return f
}

func (r *rig) alloc(bytes int) uintptr {
	r.t.Helper()
	addr, err := r.Alloc(bytes)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, r.Free(addr)) })
	return addr
}

func (r *rig) put(x []float32) uintptr {
	r.t.Helper()
	addr := r.alloc(4 * len(x))
	require.NoError(r.t, r.s.Upload(addr, cuda.Bytes(x)))
	return addr
}

func (r *rig) get(addr uintptr, n int) []float32 {
	r.t.Helper()
	x := make([]float32, n)
	require.NoError(r.t, r.s.Download(cuda.Bytes(x), addr))
	return x
}

type addParams struct {
	out, a, b uintptr
	n         int32
}

type scaleParams struct {
	out, in uintptr
	by      float32
	n       int32
}

type spinParams struct {
	flag uintptr
	ns   uint64
}

func random(seed uint64, n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = rng.Float32() - 0.5
	}
	return x
}

func TestDevice(t *testing.T) {
	d := gputest.Device(t)
	i := d.Info()
	t.Logf("%+v", i)
	require.NotEmpty(t, i.Name)
	require.Regexp(t, `^GPU-[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$`, i.UUID)
	require.Regexp(t, `^[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.0$`, i.PCIBusID)
	require.Positive(t, i.SMs)
	require.GreaterOrEqual(t, i.Major, 7)
	free, total, err := d.Memory()
	require.NoError(t, err)
	require.Positive(t, free)
	require.GreaterOrEqual(t, total, free)
	infos, err := cuda.Devices()
	require.NoError(t, err)
	require.Equal(t, i, infos[0])
	same, err := cuda.Open(0)
	require.NoError(t, err)
	require.Same(t, d, same)
	require.NoError(t, same.Close())
	can, err := d.CanAccess(d)
	require.NoError(t, err)
	require.True(t, can)
	_, err = cuda.Open(len(infos))
	require.ErrorIs(t, err, comm.Unavailable)
	_, err = d.Alloc(1 << 60)
	require.ErrorIs(t, err, cuda.OutOfMemory)
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorContains(t, err, "alloc 1152921504606846976 bytes: CUDA_ERROR_OUT_OF_MEMORY")
	_, err = d.Alloc(0)
	require.ErrorIs(t, err, comm.Invalid)
}

func TestAdd(t *testing.T) {
	r := newRig(t)
	f := r.function("add")
	for _, n := range []int{1, 31, 1000, 1 << 20} {
		a, b := random(1, n), random(2, n)
		p := addParams{out: r.alloc(4 * n), a: r.put(a), b: r.put(b), n: int32(n)}
		require.NoError(t, r.s.Fill32(p.out, 0x7fc00000, n))
		l := cuda.Linear((n+255)/256, 256)
		require.NoError(t, cuda.Run(r.s, f, &l, &p))
		want := make([]float32, n)
		for i := range want {
			want[i] = a[i] + b[i]
		}
		require.Equal(t, want, r.get(p.out, n), n)
	}
}

func TestModule(t *testing.T) {
	r := newRig(t)
	addr, bytes, err := r.m.Global("answer")
	require.NoError(t, err)
	require.Equal(t, 4, bytes)
	v := make([]uint32, 1)
	require.NoError(t, r.s.Download(cuda.Bytes(v), addr))
	require.Equal(t, uint32(42), v[0])
	_, err = r.m.Function("absent")
	require.ErrorIs(t, err, cuda.NotFound)
	require.ErrorContains(t, err, `function "absent"`)
	f := r.function("add")
	if n, err := f.ParamBytes(); !errors.Is(err, comm.Unavailable) {
		require.NoError(t, err)
		require.Equal(t, 28, n)
	}
	n, err := f.BlocksPerSM(256, 0)
	require.NoError(t, err)
	require.Positive(t, n)
	regs, err := f.Attribute(cuda.FuncNumRegisters)
	require.NoError(t, err)
	require.Positive(t, regs)
	_, err = r.LoadModule([]byte("neither a cubin nor PTX\x00"))
	require.ErrorIs(t, err, comm.Unavailable)
	l := cuda.Linear(1, 1)
	err = cuda.Run(r.s, f, &l, &[3]uintptr{})
	require.ErrorIs(t, err, comm.Invalid, "too few parameters are refused, not read past")
	require.ErrorContains(t, err, "24 bytes of parameters, the kernel takes 28")
}

func TestLaunchAttributes(t *testing.T) {
	r := newRig(t)
	out := r.alloc(4 * 4096)
	got := make([]uint32, 8)
	if r.Info().Cluster {
		l := cuda.Linear(8, 32)
		l.Cluster = 4
		require.NoError(t, cuda.Run(r.s, r.function("ranks"), &l, &out))
		require.NoError(t, r.s.Download(cuda.Bytes(got), out))
		require.Equal(t, []uint32{400, 401, 402, 403, 400, 401, 402, 403}, got)
		n, err := r.function("ranks").MaxClusters(l)
		require.NoError(t, err)
		require.Positive(t, n)
	}
	l := cuda.Linear(8, 32)
	l.Cooperative = 1
	require.NoError(t, cuda.Run(r.s, r.function("ranks"), &l, &out))
	require.NoError(t, r.s.Download(cuda.Bytes(got), out))
	require.Equal(t, []uint32{100, 100, 100, 100, 100, 100, 100, 100}, got)
	l = cuda.Linear(8, 32)
	l.RemoteDomain, l.Overlap = 1, 1
	require.NoError(t, r.s.Fill(out, 0, 32))
	require.NoError(t, cuda.Run(r.s, r.function("ranks"), &l, &out))
	require.NoError(t, r.s.Download(cuda.Bytes(got), out))
	require.Equal(t, []uint32{100, 100, 100, 100, 100, 100, 100, 100}, got)
	l = cuda.Linear(1<<20, 1024)
	l.Cooperative = 1
	require.ErrorContains(t, cuda.Run(r.s, r.function("ranks"), &l, &out), "cooperative 1", "more blocks than fit at once")

	f := r.function("big")
	l = cuda.Linear(1, 256)
	l.Shared = 4 * (16384 + 256)
	require.Error(t, cuda.Run(r.s, f, &l, &out), "66 KiB of shared memory need SetMaxShared")
	require.NoError(t, f.SetMaxShared(int(l.Shared)))
	require.NoError(t, cuda.Run(r.s, f, &l, &out))
	require.NoError(t, r.s.Download(cuda.Bytes(got), out))
	require.Equal(t, []uint32{255, 254, 253, 252, 251, 250, 249, 248}, got)
}

func TestPinnedAndCopies(t *testing.T) {
	r := newRig(t)
	const n = 1 << 16
	p, err := r.AllocHost(2 * n)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	for i := range n {
		p.Bytes()[i] = byte(i * 7)
	}
	a, b := r.alloc(n), r.alloc(n)
	require.NoError(t, r.s.Fill(a, 0xee, n))
	require.NoError(t, r.s.Copy(a, p.Addr(), n))
	require.NoError(t, r.s.Copy(b, a, n))
	require.NoError(t, r.s.Copy(p.Addr()+n, b, n))
	require.NoError(t, r.s.Copy(p.Addr()+n, b, 0))
	require.NoError(t, r.s.Wait(t.Context()))
	require.Equal(t, p.Bytes()[:n], p.Bytes()[n:])
	require.Equal(t, byte(6*7), p.Bytes()[n+6])
	owner, onDevice, err := r.Owner(a + n/2)
	require.NoError(t, err)
	require.True(t, onDevice)
	require.Equal(t, r.Ordinal(), owner)
	_, onDevice, err = r.Owner(p.Addr())
	require.NoError(t, err)
	require.False(t, onDevice)
	_, _, err = r.Owner(1 << 20)
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorIs(t, r.s.Fill32(a+1, 0, 1), comm.Invalid)
}

// One stream waits, without an SM, for a word that another writes.
func TestStreamValues(t *testing.T) {
	r := newRig(t)
	flag := r.alloc(8)
	require.NoError(t, r.s.Fill(flag, 0, 8))
	require.NoError(t, r.s.Synchronize())
	other, err := r.NewStream(0)
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	err = r.s.WaitValue(flag, 7)
	if errors.Is(err, comm.Unavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NoError(t, r.s.WriteValue(flag+4, 99))
	time.Sleep(10 * time.Millisecond)
	done, err := r.s.Query()
	require.NoError(t, err)
	require.False(t, done, "the word is 0")
	require.NoError(t, other.WriteValue(flag, 8))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, r.s.Wait(ctx), "8 is past 7")
	got := make([]uint32, 2)
	require.NoError(t, r.s.Download(cuda.Bytes(got), flag))
	require.Equal(t, []uint32{8, 99}, got)
}

func TestEvents(t *testing.T) {
	r := newRig(t)
	flag := r.alloc(4)
	require.NoError(t, r.s.Fill(flag, 0, 4))
	start, err := r.NewEvent(true)
	require.NoError(t, err)
	end, err := r.NewEvent(true)
	require.NoError(t, err)
	l := cuda.Linear(1, 1)
	const want = 3 * time.Millisecond
	require.NoError(t, cuda.Run(r.s, r.function("nothing"), &l, &struct{}{}))
	require.NoError(t, start.Record(r.s))
	require.NoError(t, cuda.Run(r.s, r.function("spin"), &l, &spinParams{flag, uint64(want)}))
	require.NoError(t, end.Record(r.s))
	done, err := end.Query()
	require.NoError(t, err)
	require.False(t, done)
	other, err := r.NewStream(0)
	require.NoError(t, err)
	require.NoError(t, other.WaitEvent(end))
	require.NoError(t, other.Wait(t.Context()))
	require.NoError(t, end.Wait(t.Context()))
	took, err := end.Since(start)
	require.NoError(t, err)
	require.GreaterOrEqual(t, took, want)
	if !gputest.Emulated(r.Device) { // where the threads of the emulator wait for a core
		require.InDelta(t, want.Seconds(), took.Seconds(), 0.5e-3)
	}
	require.NoError(t, errors.Join(other.Close(), start.Close(), end.Close()))
}

// Goroutines share a device and move between threads; each call names its device.
func TestManyGoroutines(t *testing.T) {
	r := newRig(t)
	f := r.function("add")
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			s, err := r.NewStream(0)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = s.Close() }()
			const n = 4096
			addr, err := r.Alloc(3 * 4 * n)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = r.Free(addr) }()
			got := make([]float32, n)
			for round := range 20 {
				value := float32(g*100 + round)
				x := make([]float32, n)
				for i := range x {
					x[i] = value
				}
				l := cuda.Linear(n/256, 256)
				err := errors.Join(s.Upload(addr, cuda.Bytes(x)), s.Upload(addr+4*n, cuda.Bytes(x)),
					cuda.Run(s, f, &l, &addParams{addr + 8*n, addr, addr + 4*n, n}), s.Wait(context.Background()), s.Download(cuda.Bytes(got), addr+8*n))
				if err != nil || got[0] != 2*value || got[n-1] != 2*value {
					t.Errorf("goroutine %d, round %d: %v, %v: %v", g, round, got[0], got[n-1], err)
					return
				}
			}
		})
	}
	wg.Wait()
}
