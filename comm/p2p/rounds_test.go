package p2p

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	retry "github.com/weftgo/weft/internal/patience"
	"github.com/weftgo/weft/internal/turnstile"
)

// TestRounds runs collectives one after another, without waiting between them, while ranks come at random times: each round's
// result is the next one's input, and a wrong epoch or a slot reused too early shows as a wrong number.
func TestRounds(t *testing.T) {
	const ranks, rounds, n = 8, 1000, 700
	w := openWorld(t, ranks, 20*time.Second)
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		rng := rand.New(rand.NewPCG(1, uint64(c.Rank())))
		x, all := must(tb, c, dtype.I32, 1, n), must(tb, c, dtype.I32, ranks, n)
		in := make([]int32, n)
		for i := range in {
			in[i] = int32(i + c.Rank())
		}
		require.NoError(tb, comm.Copy(c, comm.Stream{}, x, comm.Of(in, n)))
		for round := range rounds {
			switch rng.IntN(20) {
			case 0:
				time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
			case 1:
				require.NoError(tb, c.Wait(ctx, comm.Stream{}))
			}
			switch round % 3 {
			case 0:
				require.NoError(tb, c.AllGather(comm.Stream{}, all, x))
			case 1: // every rank's row becomes the sum of all rows of all ranks
				require.NoError(tb, c.ReduceScatter(comm.Stream{}, x, all, comm.Sum))
			default:
				require.NoError(tb, c.AllReduce(comm.Stream{}, x, x, comm.Max))
			}
		}
		got := make([]int32, n)
		require.NoError(tb, comm.Copy(c, comm.Stream{}, comm.Of(got, n), x))
		require.Equal(tb, twin(ranks, rounds, n, c.Rank()), got)
	})
}

// twin is what TestRounds computes, modulo 2^32.
func twin(ranks, rounds, n, rank int) []int32 {
	x := make([][]int32, ranks)
	for r := range x {
		x[r] = make([]int32, n)
		for i := range x[r] {
			x[r][i] = int32(i + r)
		}
	}
	all := make([][]int32, ranks)
	for round := range rounds {
		switch round % 3 {
		case 0:
			for r := range all {
				all[r] = append([]int32(nil), x[r]...)
			}
		case 1:
			for r := range x {
				for i := range x[r] {
					x[r][i] = all[r][i] * int32(ranks)
				}
			}
		default:
			for i := range n {
				most := x[0][i]
				for r := range x {
					most = max(most, x[r][i])
				}
				for r := range x {
					x[r][i] = most
				}
			}
		}
	}
	return x[rank]
}

func must(tb testing.TB, c *comm.Comm, t dtype.DType, rows, cols int) comm.Buffer {
	b, err := comm.Alloc(c, t, rows, cols)
	require.NoError(tb, err)
	return b
}

// TestGraph captures a step on the caller's own stream and buffers, changes the inputs between replays, and replays after a
// direct call.
func TestGraph(t *testing.T) {
	const ranks, n = 8, 3000
	d := device(t)
	w := openWorld(t, ranks, 20*time.Second)
	ready := turnstile.New(ranks)
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		own, err := d.NewStream(0)
		require.NoError(tb, err)
		s := comm.Stream{Handle: own.Handle()}
		x, y, all := must(tb, c, dtype.F32, 1, n), must(tb, c, dtype.F32, 1, n), must(tb, c, dtype.F32, ranks, n)
		graph, err := own.Capture(func() error {
			for range 2 { // two steps: the sum of sums
				if err := c.AllReduce(s, y, x, comm.Sum); err != nil {
					return err
				}
				if err := c.AllGather(s, all, y); err != nil {
					return err
				}
				if err := comm.Copy(c, s, x, all.Slice(1, 2)); err != nil {
					return err
				}
			}
			return c.Barrier(s)
		})
		require.NoError(tb, err)
		exec, err := graph.Instantiate()
		require.NoError(tb, err)
		require.NoError(tb, graph.Close())
		ready.Pass() // making graphs may wait for kernels that wait for other ranks
		require.NoError(tb, c.Barrier(comm.Stream{}))
		require.NoError(tb, c.Wait(ctx, comm.Stream{}))
		for replay := range 50 {
			in := make([]float32, n)
			for i := range in {
				in[i] = float32((i+replay+c.Rank())%7 - 3)
			}
			require.NoError(tb, comm.Copy(c, s, x, comm.Of(in, n)))
			require.NoError(tb, exec.Launch(own))
			require.NoError(tb, c.Wait(ctx, s))
			got := make([]float32, n)
			require.NoError(tb, comm.Copy(c, s, comm.Of(got, n), y))
			for i := range got {
				var sum float32
				for r := range ranks {
					sum += float32((i+replay+r)%7 - 3)
				}
				if got[i] != sum*ranks {
					tb.Fatalf("replay %d, element %d: got %v, want %v", replay, i, got[i], sum*ranks)
				}
			}
			if replay%10 == 5 {
				require.NoError(tb, c.AllReduce(comm.Stream{}, y, y, comm.Sum))
				require.NoError(tb, c.Wait(ctx, comm.Stream{}))
			}
		}
		require.NoError(tb, exec.Close())
		require.NoError(tb, own.Synchronize())
	})
}

// TestLateKernel holds one rank's stream for longer than the timeout: the others' kernels give up and name it.
func TestLateKernel(t *testing.T) { retry.Try(t, 200*time.Millisecond, lateKernel) }

func lateKernel(t testing.TB, timeout time.Duration) {
	d := device(t)
	w := openWorld(t, 4, timeout)
	errs := make([]error, 4)
	_ = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		s := comm.Stream{}
		if c.Rank() == 2 { // a stream that waits for a word which nobody writes until the others have given up
			own, err := d.NewStream(0)
			if err != nil {
				return err
			}
			s.Handle = own.Handle()
			gate, err := comm.Alloc(c, dtype.I32, 1, 1)
			if err != nil {
				return err
			}
			if err := own.WaitValue(gate.Addr(), 1); err != nil {
				return err
			}
			defer time.AfterFunc(15*timeout, func() { openGate(d, gate.Addr()) }).Stop()
			defer openGate(d, gate.Addr())
			if err := c.Barrier(s); err != nil {
				return err
			}
			<-w.Done()
			openGate(d, gate.Addr())
			errs[2] = c.Wait(context.Background(), s)
			return errs[2]
		}
		if err := c.Barrier(s); err != nil {
			return err
		}
		errs[c.Rank()] = c.Wait(context.Background(), s)
		return errs[c.Rank()]
	})
	for rank, err := range errs {
		var e *comm.Error
		require.ErrorAs(t, err, &e, "rank %d", rank)
		require.Equal(t, 2, e.Peer, "%v", err)
		if rank != 2 {
			require.ErrorIs(t, err, comm.Timeout)
		} else {
			require.ErrorIs(t, err, comm.Aborted)
		}
	}
}

func openGate(d *cuda.Device, addr uintptr) {
	s, err := d.NewStream(0)
	if err != nil {
		return
	}
	_ = s.WriteValue(addr, 1)
	_ = s.Synchronize()
	_ = s.Close()
}

// TestManyParts gives more tensors than one launch takes.
func TestManyParts(t *testing.T) {
	w := openWorld(t, 3, 10*time.Second)
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		const num = 19
		var parts []comm.Part
		for i := range num {
			src, dst := must(tb, c, dtype.I32, 2, 3+i), must(tb, c, dtype.I32, 6, 3+i)
			in := make([]int32, 2*(3+i))
			for k := range in {
				in[k] = int32(1000*i + 100*c.Rank() + k)
			}
			require.NoError(tb, comm.Copy(c, comm.Stream{}, src, comm.Of(in, 3+i)))
			parts = append(parts, comm.Part{Dst: dst, Src: src})
		}
		require.NoError(tb, c.AllGatherV(comm.Stream{}, comm.Host([]int{2, 2, 2}), parts...))
		require.EqualValues(tb, 3, c.Stats()[comm.AllGatherV].Launches)
		for i, p := range parts {
			got := make([]int32, 6*(3+i))
			require.NoError(tb, comm.Copy(c, comm.Stream{}, comm.Of(got, 3+i), p.Dst))
			for k, v := range got {
				n := 2 * (3 + i)
				require.EqualValues(tb, 1000*i+100*(k/n)+k%n, v, "part %d", i)
			}
		}
	})
}

// TestEnqueue counts what the host allocates for a call.
func TestEnqueue(t *testing.T) {
	w := openWorld(t, 1, 10*time.Second)
	c := w.Local()[0]
	x := must(t, c, dtype.F32, 4, 64)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := c.AllReduce(comm.Stream{}, x, x, comm.Sum); err != nil {
			t.Error(err)
		}
	}))
	require.NoError(t, c.Wait(t.Context(), comm.Stream{}))
}
