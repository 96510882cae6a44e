package cuda_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/cuda"
)

// A captured graph runs with the inputs that its addresses hold at each replay.
func TestGraphReplay(t *testing.T) {
	r := newRig(t)
	const n = 1000
	in, mid, out := r.put(random(1, n)), r.alloc(4*n), r.alloc(4*n)
	l := cuda.Linear(4, 256)
	build := func(by float32) *cuda.Graph {
		g, err := r.s.Capture(func() error {
			capturing, err := r.s.Capturing()
			if err != nil || !capturing {
				return errors.Join(err, errors.New("not capturing"))
			}
			return errors.Join(
				cuda.Run(r.s, r.function("scale"), &l, &scaleParams{mid, in, by, n}),
				cuda.Run(r.s, r.function("add"), &l, &addParams{out, mid, in, n}))
		})
		require.NoError(t, err)
		return g
	}
	g := build(2)
	nodes, err := g.NumNodes()
	require.NoError(t, err)
	require.Equal(t, 2, nodes)
	exec, err := g.Instantiate()
	require.NoError(t, err)
	require.NoError(t, g.Close())
	require.NoError(t, exec.Upload(r.s))
	replay := func(seed uint64, by float32) {
		x := random(seed, n)
		require.NoError(t, r.s.Upload(in, cuda.Bytes(x)))
		require.NoError(t, r.s.Fill(out, 0xff, 4*n))
		require.NoError(t, exec.Launch(r.s))
		want := make([]float32, n)
		for i := range want {
			want[i] = float32(x[i]*by) + x[i]
		}
		require.Equal(t, want, r.get(out, n), "seed %d, by %v", seed, by)
	}
	for seed := range uint64(5) {
		replay(seed, 2)
	}
	g = build(3)
	require.NoError(t, exec.Update(g))
	require.NoError(t, g.Close())
	replay(9, 3)
	other, err := r.s.Capture(func() error { return r.s.Fill(out, 0, 4) })
	require.NoError(t, err)
	require.ErrorContains(t, exec.Update(other), "instantiate it anew")
	require.NoError(t, other.Close())
	replay(10, 3)
	require.NoError(t, exec.Close())
}

// A failed capture leaves no graph, and the stream as it was.
func TestCaptureFails(t *testing.T) {
	r := newRig(t)
	out := r.alloc(16)
	why := errors.New("the caller's own reason")
	_, err := r.s.Capture(func() error {
		require.NoError(t, r.s.Fill(out, 1, 16))
		return why
	})
	require.ErrorIs(t, err, why)
	_, err = r.s.Capture(func() error { return r.s.Synchronize() })
	require.ErrorContains(t, err, "STREAM_CAPTURE")
	require.Panics(t, func() { _, _ = r.s.Capture(func() error { panic("in capture") }) })
	capturing, err := r.s.Capturing()
	require.NoError(t, err)
	require.False(t, capturing)
	require.NoError(t, r.s.Fill(out, 0, 16))
	require.Equal(t, make([]float32, 4), r.get(out, 4))
}

// Other goroutines may allocate while one captures.
func TestCaptureIsThreadLocal(t *testing.T) {
	r := newRig(t)
	out := r.alloc(16)
	g, err := r.s.Capture(func() error {
		done := make(chan error)
		go func() {
			addr, err := r.Alloc(1 << 20)
			done <- errors.Join(err, r.Free(addr))
		}()
		return errors.Join(<-done, r.s.Fill(out, 3, 16))
	})
	require.NoError(t, err)
	require.NoError(t, g.Close())
}
