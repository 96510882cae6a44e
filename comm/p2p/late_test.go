package p2p

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/nvrtc"
	retry "github.com/weftgo/weft/internal/patience"
)

// memoryComesBack checks that the device has as much free memory after the test as now. A first world makes the driver take
// what it keeps for a process, such as the memory of stacks.
func memoryComesBack(t *testing.T) {
	d := device(t)
	first, _, err := d.Memory()
	require.NoError(t, err)
	w := openTimeout(t, 8, time.Second)
	require.NoError(t, w.Close(t.Context()))
	before, _, err := d.Memory()
	require.NoError(t, err)
	if first != before {
		t.Logf("RESULT a process's first world left the driver with %d MiB", (first-before)>>20)
	}
	alive := d.Alive()
	t.Cleanup(func() {
		after, _, err := d.Memory()
		require.NoError(t, err)
		require.Equal(t, before, after, "free bytes of the device")
		require.Equal(t, alive, d.Alive())
		t.Logf("RESULT %s: %d bytes free before and after", t.Name(), after)
	})
}

// requireLate checks the errors of a world in which one rank was late: Timeout that names it on the others, within the
// deadline, Aborted on the rank itself.
func requireLate(t testing.TB, errs []error, late int) {
	for rank, err := range errs {
		var e *comm.Error
		require.ErrorAs(t, err, &e, "rank %d", rank)
		require.Equal(t, late, e.Peer, "%v", err)
		if rank != late {
			require.ErrorIs(t, err, comm.Timeout)
			require.ErrorContains(t, err, fmt.Sprintf("for rank %d in", late))
		} else {
			require.ErrorIs(t, err, comm.Aborted)
		}
	}
}

// TestRankNeverArrives leaves one rank out of every kind of operation: seven get Timeout with its name, in time.
func TestRankNeverArrives(t *testing.T) {
	memoryComesBack(t)
	for _, x := range []struct {
		name string
		do   func(c *comm.Comm, b comm.Buffer) error
	}{
		{"barrier", func(c *comm.Comm, _ comm.Buffer) error { return c.Barrier(comm.Stream{}) }},
		{"small all_reduce", func(c *comm.Comm, b comm.Buffer) error {
			return c.AllReduce(comm.Stream{}, b.Slice(0, 1), b.Slice(0, 1), comm.Sum)
		}},
		{"large all_reduce", func(c *comm.Comm, b comm.Buffer) error { return c.AllReduce(comm.Stream{}, b, b, comm.Sum) }},
		{"all_gather", func(c *comm.Comm, b comm.Buffer) error {
			return c.AllGather(comm.Stream{}, b, b.Slice(c.Rank()*8, c.Rank()*8+8))
		}},
		{"alltoallv", func(c *comm.Comm, b comm.Buffer) error {
			n := comm.Host([]int{1, 0, 2, 1, 1, 1, 1, 1})
			m := comm.Host([][]int{{1, 1, 1, 1, 1, 1, 1, 1}, make([]int, 8), {2, 2, 2, 2, 2, 2, 2, 2}}[min(c.Rank(), 2)])
			if c.Rank() > 2 {
				m = comm.Host([]int{1, 1, 1, 1, 1, 1, 1, 1})
			}
			return c.AllToAllV(comm.Stream{}, n, m, comm.Part{Dst: b.Slice(32, 64), Src: b.Slice(0, 32)})
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			retry.Try(t, 300*time.Millisecond, func(t testing.TB, timeout time.Duration) { neverArrives(t, timeout, x.name, x.do) })
		})
	}
}

func neverArrives(t testing.TB, timeout time.Duration, name string, do func(c *comm.Comm, b comm.Buffer) error) {
	const ranks, late = 8, 5
	w := openWorld(t, ranks, timeout)
	errs := make([]error, ranks)
	start := time.Now()
	_ = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		b, err := comm.Alloc(c, dtype.BF16, 64, 5000)
		if err != nil {
			return err
		}
		if c.Rank() == late {
			<-w.Done()
		} else {
			err = do(c, b)
		}
		if err == nil {
			err = c.Wait(context.Background(), comm.Stream{})
		}
		errs[c.Rank()] = err
		return err
	})
	took := time.Since(start)
	requireLate(t, errs, late)
	require.Greater(t, took, timeout)
	require.Less(t, took, timeout+2*time.Second)
	t.Logf("RESULT %s without rank %d, deadline %v: all ranks had their errors after %v", name, late, timeout, took.Round(time.Millisecond))
}

// sleeper is a kernel that takes its time and waits for nobody.
const sleeper = `
extern "C" __global__ void sleeper(unsigned long long nanoseconds) {
	unsigned long long start, now;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
	do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - start < nanoseconds);
}`

// TestKernelIsLate puts a kernel of three seconds before one rank's operation. With a deadline of one second the others give up
// in time, and name it; with one of twenty they wait, and the result is right.
func TestKernelIsLate(t *testing.T) {
	d := device(t)
	image, err := nvrtc.Cubin(nvrtc.Program{Name: "sleeper.cu", Source: sleeper, Arch: d.Info().Arch()})
	require.NoError(t, err)
	module, err := d.LoadModule(image)
	require.NoError(t, err)
	defer func() { require.NoError(t, module.Close()) }()
	kernel, err := module.Function("sleeper")
	require.NoError(t, err)
	first, err := d.NewStream(0)
	require.NoError(t, err)
	l, ns := cuda.Linear(1, 1), uint64(1)
	require.NoError(t, errors.Join(cuda.Run(first, kernel, &l, &ns), first.Synchronize(), first.Close()))
	t.Run("worlds", func(t *testing.T) {
		kernelIsLate(t, d, kernel, 20*time.Second, 0) // the driver keeps what the first stream beside the ranks' takes
		memoryComesBack(t)
		t.Run("beyond the deadline", func(t *testing.T) {
			retry.Try(t, time.Second, func(t testing.TB, timeout time.Duration) { kernelIsLate(t, d, kernel, timeout, 3*timeout) })
		})
		t.Run("within it", func(t *testing.T) { kernelIsLate(t, d, kernel, 20*time.Second, 3*time.Second) })
	})
}

func kernelIsLate(t testing.TB, d *cuda.Device, kernel *cuda.Function, timeout, sleep time.Duration) {
	const ranks, late = 8, 2
	w := openTimeout(t, ranks, timeout)
	defer func() { require.NoError(t, w.Close(context.Background())) }()
	errs, took := make([]error, ranks), make([]time.Duration, ranks)
	start := time.Now()
	_ = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		err := func() error {
			s := comm.Stream{}
			x, err := comm.Alloc(c, dtype.F32, 1, 4)
			if err != nil {
				return err
			}
			if err := comm.Copy(c, s, x, comm.Of([]float32{1, 2, 3, float32(c.Rank())}, 4)); err != nil {
				return err
			}
			if c.Rank() == late {
				mine, err := d.NewStream(0)
				if err != nil {
					return err
				}
				defer func() { _ = mine.Close() }()
				s.Handle = mine.Handle()
				l := cuda.Linear(1, 1)
				ns := uint64(sleep)
				if err := cuda.Run(mine, kernel, &l, &ns); err != nil {
					return err
				}
			}
			err = errors.Join(c.AllReduce(s, x, x, comm.Sum), c.Wait(context.Background(), s))
			if err != nil {
				return err
			}
			got := make([]float32, 4)
			err = comm.Copy(c, s, comm.Of(got, 4), x)
			require.Equal(t, []float32{8, 16, 24, 28}, got)
			return err
		}()
		errs[c.Rank()], took[c.Rank()] = err, time.Since(start)
		return err
	})
	if timeout > sleep {
		require.NoError(t, errors.Join(errs...))
		return
	}
	requireLate(t, errs, late)
	for rank, x := range took {
		if rank != late {
			require.Less(t, x, timeout+time.Second, "rank %d", rank)
		}
	}
	t.Logf("RESULT a kernel late by %v, deadline %v: the others had their errors after %v: %v", sleep, timeout, took[0].Round(time.Millisecond), errs[0])
}
