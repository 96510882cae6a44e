package p2p

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/turnstile"
)

// TestChoose looks rows up.
func TestChoose(t *testing.T) {
	var none *tuning
	require.Zero(t, none.choose(comm.AllReduce, 8))
	x := &tuning{Choices: map[comm.OpKind][]choice{
		comm.AllReduce: {{MaxBytes: 1 << 10, Push: true, Blocks: 1}, {MaxBytes: 1 << 20, Blocks: 4}},
		comm.AllGather: {{MaxBytes: 64, Blocks: 2}},
	}}
	require.True(t, x.choose(comm.AllReduce, 1<<10).Push)
	require.Equal(t, 4, x.choose(comm.AllReduce, 1<<10+1).Blocks)
	require.Zero(t, x.choose(comm.AllReduce, 1<<20+1))
	require.Equal(t, 2, x.choose(comm.AllGatherV, 64).Blocks)
	require.Equal(t, 2, x.choose(comm.Broadcast, 1).Blocks)
	require.Zero(t, x.choose(comm.ReduceScatterV, 1))
}

// TestTableFile stores and loads rows, and refuses another world's and broken files.
func TestTableFile(t *testing.T) {
	t.Setenv("WEFT_CACHE_DIR", t.TempDir())
	fresh := func() *tuning {
		return &tuning{GPU: "a", Driver: "1", Ranks: "8", Library: "x", Choices: map[comm.OpKind][]choice{}}
	}
	x := fresh()
	require.False(t, x.load())
	x.Choices[comm.AllReduce] = []choice{{MaxBytes: 5, Push: true, Blocks: 3, TimeUs: 1.5}, {MaxBytes: 6, Blocks: 1}}
	require.NoError(t, x.store())
	y := fresh()
	require.True(t, y.load())
	require.Equal(t, x.Choices[comm.AllReduce], y.Choices[comm.AllReduce])
	for _, other := range []*tuning{{GPU: "b", Driver: "1", Ranks: "8", Library: "x"}, {GPU: "a", Driver: "2", Ranks: "8", Library: "x"},
		{GPU: "a", Driver: "1", Ranks: "4,4", Library: "x"}, {GPU: "a", Driver: "1", Ranks: "8", Library: "y"}} {
		require.NotEqual(t, x.path(), other.path())
		require.False(t, other.load())
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(x.path()), "*"))
	require.NoError(t, err)
	require.Equal(t, []string{x.path()}, files)
	require.NoError(t, os.WriteFile(x.path(), []byte(`{"gpu":"a","driver":"1","ranks":"8","library":"x","choices":{"all_reduce":[{"max_bytes":5,"blocks":0}]}}`), 0o600))
	require.False(t, fresh().load(), "no blocks")
	require.NoError(t, os.WriteFile(x.path(), []byte("{"), 0o600))
	require.False(t, fresh().load(), "no JSON")
}

// TestMeter lets ranks keep the books of many trials in step: each trial has the slowest rank's time, also when a rank is slow
// to leave it. The race detector looks for reads that are not guarded.
func TestMeter(t *testing.T) {
	const ranks, trials = 4, 200
	m := &meter{trial: &tuning{Choices: map[comm.OpKind][]choice{}}, turn: turnstile.New(ranks)}
	var got []float64
	var g errgroup.Group
	for rank := range ranks {
		g.Go(func() error {
			for i := range trials {
				if rank == 0 {
					m.begin(comm.AllReduce, choice{Blocks: i})
				}
				if err := m.turn.Wait(t.Context()); err != nil {
					return err
				}
				m.took(float64(trials - i + (rank+i)%ranks))
				if err := m.turn.Wait(t.Context()); err != nil {
					return err
				}
				if rank == 0 {
					got = append(got, m.slowest())
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	for i, us := range got {
		require.EqualValues(t, trials-i+ranks-1, us)
	}
	require.Len(t, got, trials)
}

// TestTune measures, stores, loads in another world, and compares results under every kind of choice with the CPU driver's.
func TestTune(t *testing.T) {
	device(t)
	cache := os.Getenv("WEFT_CACHE_DIR")
	const ranks = 8
	twin, err := local.Open(local.Config{Ranks: ranks})
	require.NoError(t, err)
	want := make([][][]byte, ranks)
	commtest.Run(t, twin, func(ctx context.Context, tb testing.TB, c *comm.Comm) { want[c.Rank()] = mixed(ctx, tb, c, 2*batch) })
	require.NoError(t, twin.Close(context.Background()))

	w := openWorld(t, ranks, 20*time.Second)
	in := w.Local()[0].Conn().(*conn).g.w
	check := func(name string, x *tuning) {
		in.table = x
		commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
			require.Equal(tb, want[c.Rank()], mixed(ctx, tb, c, 2*batch), name)
		})
	}
	check("default", nil)
	for _, c := range []choice{{Blocks: 1}, {Blocks: 3, Push: true}, {Blocks: 16}, {Blocks: 1, Push: true}} {
		c.MaxBytes = 1 << 40
		rows := map[comm.OpKind][]choice{}
		for _, k := range tunedKinds {
			rows[k] = []choice{c}
		}
		check("fixed", &tuning{Choices: rows})
	}
	in.table = nil
	dir := t.TempDir()
	t.Setenv("WEFT_CACHE_DIR", dir)
	start := time.Now()
	require.NoError(t, Tune(t.Context(), w))
	t.Logf("measured in %v", time.Since(start))
	for k, rows := range in.table.Choices {
		for _, c := range rows {
			t.Logf("%-15v up to %8d bytes: push %-5v blocks %2d %8.2f us", k, c.MaxBytes, c.Push, c.Blocks, c.TimeUs)
		}
	}
	tuned := in.table
	require.Len(t, tuned.Choices, len(tunedKinds))
	check("tuned", tuned)
	if cache != "" { // compiled kernels are there
		require.NoError(t, os.CopyFS(filepath.Join(dir, "nvrtc"), os.DirFS(filepath.Join(cache, "nvrtc"))))
	}
	again := openWorld(t, ranks, 20*time.Second)
	require.Equal(t, tuned.Choices, again.Local()[0].Conn().(*conn).g.w.table.Choices)
	t.Setenv("WEFT_TUNE", "off")
	off := openWorld(t, ranks, 20*time.Second)
	require.Nil(t, off.Local()[0].Conn().(*conn).g.w.table)
	t.Setenv("WEFT_TUNE", "what")
	_, err = Open(t.Context(), Config{Devices: oneGPU(2)})
	require.ErrorIs(t, err, comm.Invalid)
}

// TestGraphOfOthers captures a collective between nodes that are no kernels of weft, and replays it.
func TestGraphOfOthers(t *testing.T) {
	const ranks, n = 4, 3000
	d := device(t)
	w := openWorld(t, ranks, 20*time.Second)
	ready := turnstile.New(ranks)
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		own, err := d.NewStream(0)
		require.NoError(tb, err)
		s := comm.Stream{Handle: own.Handle()}
		x, y := must(tb, c, dtype.I32, 1, n), must(tb, c, dtype.I32, 1, n)
		graph, err := own.Capture(func() error {
			return errors.Join(own.Fill32(x.Addr(), uint32(c.Rank()+1), n), c.AllReduce(s, x, x, comm.Sum),
				own.Copy(y.Addr(), x.Addr(), n*4), c.AllReduce(s, y, y, comm.Sum), own.Fill32(x.Addr(), 0, n))
		})
		require.NoError(tb, err)
		exec, err := graph.Instantiate()
		require.NoError(tb, err)
		require.NoError(tb, graph.Close())
		ready.Pass() // making graphs may wait for kernels that wait for other ranks
		for range 20 {
			require.NoError(tb, exec.Launch(own))
		}
		require.NoError(tb, c.Wait(ctx, s))
		got := make([]int32, n)
		require.NoError(tb, comm.Copy(c, s, comm.Of(got, n), y))
		for i := range got {
			require.EqualValues(tb, 10*ranks, got[i])
		}
		require.NoError(tb, exec.Close())
		require.NoError(tb, own.Close())
	})
}
