package cuda_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/cublaslt"
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/internal/nvrtc"
)

// waiting is how long the kernel of TestWhatWaits stays.
const waiting = 150 * time.Millisecond

// timed is a call that a rank may make while another rank's kernel waits for it.
type timed struct {
	name   string
	relied bool // weft makes it while ranks wait, so it must return while the kernel runs
	do     func() error
}

// TestWhatWaits times the driver's calls while a kernel waits, as a rank's kernel does for a rank that is late. Those that weft
// relies on must not wait for it; of the others the log says which do.
func TestWhatWaits(t *testing.T) {
	r := newRig(t)
	flag := r.alloc(4)
	side, err := r.NewStream(0)
	require.NoError(t, err)
	spin := r.function("spin")
	waiting := waiting
	if gputest.Emulated(r.Device) {
		waiting = time.Second // threads of other processes may have the cores meanwhile
	}
	for _, x := range r.calls(side) {
		require.NoError(t, side.Fill(flag, 0, 4))
		require.NoError(t, side.Synchronize())
		l := cuda.Linear(1, 1)
		require.NoError(t, cuda.Run(r.s, spin, &l, &spinParams{flag, uint64(waiting)}))
		start := time.Now()
		err := x.do()
		took := time.Since(start)
		done, err2 := r.s.Query()
		require.NoError(t, errors.Join(err, err2), x.name)
		t.Logf("RESULT while a kernel of %v waits: %-40s %8.3f ms, waited %v", waiting, x.name, took.Seconds()*1e3, done)
		if x.relied {
			require.False(t, done, "%s waited for the kernel", x.name)
		}
		if gputest.Emulated(r.Device) {
			require.NoError(t, side.Fill32(flag, 1, 1))
		}
		require.NoError(t, r.s.Synchronize())
	}
	require.NoError(t, side.Close())
}

// calls are what a rank may do. Some need what an earlier one made.
func (r *rig) calls(side *cuda.Stream) []timed {
	a := r.alloc(1 << 20)
	var plain, again uintptr
	var pinned *cuda.Pinned
	var extra *cuda.Stream
	var span *cuda.Span
	var module *cuda.Module
	var graph *cuda.Graph
	var exec *cuda.Exec
	nothing, deep, empty := r.function("nothing"), r.function("deep"), struct{}{}
	l := cuda.Linear(1, 1)
	image, err := nvrtc.Cubin(nvrtc.Program{Name: "test.cu", Source: kernels, Arch: r.Info().Arch()})
	require.NoError(r.t, err)
	host := make([]byte, 4096)
	list := []timed{
		{"a kernel's first launch, and its end", true, func() error {
			return errors.Join(cuda.Run(side, nothing, &l, &empty), side.Synchronize())
		}},
		{"a kernel of deep stacks, its first launch", false, func() error {
			return errors.Join(cuda.Run(side, deep, &l, &a), side.Synchronize())
		}},
		{"the same again", true, func() error { return errors.Join(cuda.Run(side, deep, &l, &a), side.Synchronize()) }},
		{"fill, copy and wait for them", true, func() error {
			return errors.Join(side.Fill(a, 1, 1<<19), side.Copy(a+1<<19, a, 1<<19), side.Synchronize())
		}},
		{"copy from pageable memory", false, func() error { return side.Upload(a, host) }},
		{"make a stream", true, func() (err error) { extra, err = r.NewStream(0); return err }},
		{"destroy a stream", true, func() error { return extra.Close() }},
		{"map memory", true, func() error {
			g, err := cuda.Granularity(r.Device)
			if err == nil {
				span, err = r.Reserve(4 * g)
			}
			if err != nil {
				return err
			}
			p, err := r.Create(4*g, false)
			return errors.Join(err, span.Map(0, p), p.Close(), span.SetAccess(r.Device))
		}},
		{"unmap memory", false, func() error { return span.Close() }},
		{"alloc", false, func() (err error) { plain, err = r.Device.Alloc(1 << 20); return err }},
		{"alloc large", false, func() (err error) { again, err = r.Device.Alloc(1 << 28); return err }},
		{"free", false, func() error { return r.Device.Free(plain) }},
		{"free large", false, func() error { return r.Device.Free(again) }},
		{"alloc pinned", false, func() (err error) { pinned, err = r.AllocHost(1 << 20); return err }},
		{"free pinned", false, func() error { return pinned.Close() }},
		{"load a module", false, func() (err error) { module, err = r.LoadModule(image); return err }},
		{"unload it", false, func() error { return module.Close() }},
		{"capture", true, func() (err error) {
			graph, err = side.Capture(func() error { return cuda.Run(side, nothing, &l, &empty) })
			return err
		}},
		{"instantiate", false, func() (err error) { exec, err = graph.Instantiate(); return err }},
		{"launch a graph, and its end", true, func() error { return errors.Join(exec.Launch(side), side.Synchronize()) }},
		{"destroy a graph", false, func() error { return errors.Join(exec.Close(), graph.Close()) }},
		{"free memory info", false, func() error { _, _, err := r.Memory(); return err }},
	}
	return append(append(list, r.products(side, a)...), r.held()...)
}

// held are the calls that Hold puts off. The first one holds the device.
func (r *rig) held() []timed {
	plain, err := r.Device.Alloc(1 << 20)
	require.NoError(r.t, err)
	pinned, err := r.AllocHost(1 << 20)
	require.NoError(r.t, err)
	image, err := nvrtc.Cubin(nvrtc.Program{Name: "test.cu", Source: kernels, Arch: r.Info().Arch()})
	require.NoError(r.t, err)
	module, err := r.LoadModule(image)
	require.NoError(r.t, err)
	release := func() error { return nil }
	r.t.Cleanup(func() { require.NoError(r.t, release()) })
	return []timed{
		{"free on a held device", true, func() error {
			release = r.Hold()
			return r.Device.Free(plain)
		}},
		{"free pinned on a held device", true, func() error { return pinned.Close() }},
		{"unload on a held device", true, func() error { return module.Close() }},
	}
}

// products are matrix products of libcublasLt: of a shape that was warmed, and of one that was not.
func (r *rig) products(side *cuda.Stream, at uintptr) []timed {
	if gputest.Emulated(r.Device) {
		return nil // there is no libcublasLt for it
	}
	if err := cublaslt.Init(); err != nil {
		gputest.Library(r.t, err)
	}
	h, err := cublaslt.New(r.Device, 0)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, h.Close()) })
	warm := cublaslt.Problem{M: 128, N: 64, K: 64, TransB: true, Type: dtype.BF16, Out: dtype.BF16}
	require.NoError(r.t, h.Warm(side, warm))
	warm.M = 77
	fresh := cublaslt.Problem{M: 200, N: 256, K: 512, Type: dtype.F16, Out: dtype.F32}
	run := func(p cublaslt.Problem) func() error {
		return func() error {
			return errors.Join(h.Matmul(side, p, at, at, at, 1, 0), side.Synchronize())
		}
	}
	return []timed{
		{"a product of a warmed bucket", true, run(warm)},
		{"a product that was never warmed", false, run(fresh)},
		{"that product again", true, run(fresh)},
	}
}

// TestHold puts off what would wait, keeps count of it, and gives everything back.
func TestHold(t *testing.T) {
	d := gputest.Device(t)
	before := d.Alive()
	first, _, err := d.Memory()
	require.NoError(t, err)
	addr, err := d.Alloc(64 << 20)
	require.NoError(t, err)
	one, two := d.Hold(), d.Hold()
	require.NoError(t, d.Free(addr))
	require.NoError(t, one())
	require.NoError(t, one(), "twice")
	require.Equal(t, 1, d.PutOff())
	_, err = d.Alloc(1 << 60)
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorContains(t, err, "1 frees are put off")
	require.NoError(t, two())
	require.Zero(t, d.PutOff())
	require.Equal(t, before, d.Alive())
	last, _, err := d.Memory()
	require.NoError(t, err)
	require.GreaterOrEqual(t, last, first, "free bytes of the device; it may give back what earlier tests left too")
}

func TestWaitEndsWithItsContext(t *testing.T) {
	r := newRig(t)
	flag := r.alloc(4)
	require.NoError(t, r.s.Fill(flag, 0, 4))
	require.NoError(t, r.s.Synchronize())
	l := cuda.Linear(1, 1)
	require.NoError(t, cuda.Run(r.s, r.function("spin"), &l, &spinParams{flag, uint64(5 * time.Second)}))
	done, err := r.s.Query()
	require.NoError(t, err)
	require.False(t, done)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	start := time.Now()
	require.ErrorIs(t, r.s.Wait(ctx), context.DeadlineExceeded)
	require.Less(t, time.Since(start), time.Second)
	other, err := r.NewStream(0) // the flag is set by another stream while the kernel runs
	require.NoError(t, err)
	require.NoError(t, other.Fill32(flag, 1, 1))
	require.NoError(t, r.s.Wait(t.Context()))
	require.Less(t, time.Since(start), 4*time.Second)
	require.NoError(t, other.Close())
}
