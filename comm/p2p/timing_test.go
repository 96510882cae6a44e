package p2p

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/internal/kernels"
	"github.com/weftgo/weft/internal/nvrtc"
	"github.com/weftgo/weft/internal/turnstile"
)

// timing is one line of a results file.
type timing struct {
	Record  string  `json:"record"` // "row"
	Op      string  `json:"op"`
	How     string  `json:"how"` // "graph", "stream", "kernel": what is repeated
	Type    string  `json:"type,omitempty"`
	Ranks   int     `json:"ranks"`
	Size    int64   `json:"size"` // payload bytes of the op: what an all-reduce adds up, what a gather makes, what one rank sends
	Moved   int64   `json:"moved,omitempty"`
	TimeUs  float64 `json:"time_us"`
	GBs     float64 `json:"gbs,omitempty"`
	OfFloor float64 `json:"of_floor,omitempty"` // floor / time, at the copy rate of this run
	Note    string  `json:"note,omitempty"`
}

type timings struct {
	t    testing.TB
	file *os.File
	copy float64 // bytes a second, read and written
	list []timing
}

func (x *timings) add(row timing) {
	row.Record = "row"
	if row.Moved > 0 {
		row.GBs = float64(row.Moved) / row.TimeUs / 1e3
		row.OfFloor = row.GBs * 1e9 / x.copy
	}
	x.list = append(x.list, row)
	x.t.Logf("%-16s %-7s %-5s %d ranks %10d bytes %9.2f us %7.0f GB/s %.3f %s", row.Op, row.How, row.Type, row.Ranks, row.Size, row.TimeUs, row.GBs, row.OfFloor, row.Note)
	if x.file != nil {
		b, err := json.Marshal(row)
		require.NoError(x.t, err)
		_, err = fmt.Fprintf(x.file, "%s\n", b)
		require.NoError(x.t, err)
	}
}

// TestTiming measures on GPU 0; it runs when WEFT_TIMING names the results file. Sizes beyond L2; medians; a time is that of
// the slowest rank.
func TestTiming(t *testing.T) {
	name := os.Getenv("WEFT_TIMING")
	if name == "" {
		t.Skip("set WEFT_TIMING to the file for the results")
	}
	d := gputest.Device(t)
	x := &timings{t: t}
	var err error
	x.file, err = os.Create(name)
	require.NoError(t, err)
	defer x.file.Close()
	version, err := cuda.Version()
	require.NoError(t, err)
	lib, err := nvrtc.Loaded()
	require.NoError(t, err)
	header, err := json.Marshal(map[string]any{"record": "header", "tool": "p2p timing", "gpu": d.Info().Name, "sms": d.Info().SMs,
		"arch": d.Info().Arch(), "cuda": version, "nvrtc": lib.Version, "driver": os.Getenv("WEFT_DRIVER_VERSION"),
		"time": time.Now().UTC().Format(time.RFC3339), "flags": "median of repetitions, slowest rank; all ranks enqueue first, then begin with a barrier; a graph holds 100 operations, or 8 of 64 MiB and more, whose buffers are beyond L2; a stream gets 4 in a row; no table of choices"})
	require.NoError(t, err)
	fmt.Fprintf(x.file, "%s\n", header)
	x.ceiling(d)
	for _, ranks := range []int{2, 8} {
		x.barriers(ranks)
		x.small(ranks)
	}
	x.large()
	x.enqueue()
}

// ceiling is a stream's memcpy of 2 GiB.
func (x *timings) ceiling(d *cuda.Device) {
	const bytes = 2 << 30
	a, err := d.Alloc(bytes)
	require.NoError(x.t, err)
	b, err := d.Alloc(bytes)
	require.NoError(x.t, err)
	s, err := d.NewStream(0)
	require.NoError(x.t, err)
	require.NoError(x.t, s.Fill32(a, 0x3f8ccccd, bytes/4))
	us := between(x.t, d, nil, s, 9, nil, func() error { return s.Copy(b, a, bytes) })
	x.copy = 2 * bytes / us * 1e6
	x.add(timing{Op: "memcpy", How: "stream", Ranks: 1, Size: bytes, Moved: 2 * bytes, TimeUs: us})
	require.NoError(x.t, d.Free(a))
	require.NoError(x.t, d.Free(b))
	require.NoError(x.t, s.Close())
}

// run makes every rank time fn on a stream of its own, in step, and returns the slowest rank's median.
func (x *timings) run(w *comm.World, reps int, prepare func(c *comm.Comm, s comm.Stream, st *cuda.Stream) func() error) float64 {
	d := w.Local()[0].Conn().(*conn).r.gpu.dev
	var mu sync.Mutex
	worst := 0.0
	all := turnstile.New(w.Size())
	require.NoError(x.t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		st, err := d.NewStream(0)
		if err != nil {
			return err
		}
		s := comm.Stream{Handle: st.Handle()}
		fn := prepare(c, s, st)
		in := c.Conn().(*conn)
		word, err := in.r.zeroed(4)
		if err != nil {
			return err
		}
		h := &hold{r: in.r, word: word, all: all}
		all.Pass() // making graphs and taking memory may wait for kernels that wait for other ranks
		if err := errors.Join(c.Barrier(s), c.Wait(ctx, s)); err != nil {
			return err
		}
		us := between(x.t, d, c, st, reps, h, fn)
		all.Pass()
		mu.Lock()
		worst = max(worst, us)
		mu.Unlock()
		return errors.Join(c.Wait(ctx, s), st.Close()) // hardware queues are few
	}))
	return worst
}

// graph captures n calls of op after a barrier and times replays, per call.
func (x *timings) graph(w *comm.World, n int, prepare func(c *comm.Comm, s comm.Stream) func(i int) error) float64 {
	us := x.run(w, 21, func(c *comm.Comm, s comm.Stream, st *cuda.Stream) func() error {
		op := prepare(c, s)
		g, err := st.Capture(func() error {
			for i := range n {
				if err := op(i); err != nil {
					return err
				}
			}
			return nil
		})
		require.NoError(x.t, err)
		exec, err := g.Instantiate()
		require.NoError(x.t, err)
		require.NoError(x.t, exec.Upload(st))
		return func() error { return exec.Launch(st) }
	})
	return us / float64(n)
}

func (x *timings) open(ranks int) *comm.World {
	w, err := Open(context.Background(), Config{Devices: oneGPU(ranks), Timeout: 20 * time.Second})
	require.NoError(x.t, err)
	return w
}

func (x *timings) barriers(ranks int) {
	w := x.open(ranks)
	const rounds = 1000
	us := x.run(w, 9, func(c *comm.Comm, s comm.Stream, st *cuda.Stream) func() error {
		in := c.Conn().(*conn)
		a := kernels.Args{Ctl: uint64(in.ctl), Shared: 1}
		a.Entry.Signature = 77
		a.SetEntryWords()
		return func() error { return in.r.gpu.kernels.Barriers(st, &a, w.Size(), rounds) }
	})
	x.add(timing{Op: "barrier", How: "kernel", Ranks: ranks, TimeUs: us / rounds, Note: "one round of 1000 in one launch"})
	us = x.graph(w, 100, func(c *comm.Comm, s comm.Stream) func(int) error {
		return func(int) error { return c.Barrier(s) }
	})
	x.add(timing{Op: "barrier", How: "graph", Ranks: ranks, TimeUs: us})
	require.NoError(x.t, w.Close(context.Background()))
}

func (x *timings) small(ranks int) {
	w := x.open(ranks)
	for _, bytes := range []int{1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20} {
		us := x.graph(w, 100, func(c *comm.Comm, s comm.Stream) func(int) error {
			b := x.filled(c, dtype.BF16, 1, bytes/2)
			return func(int) error { return c.AllReduce(s, b, b, comm.Max) }
		})
		x.add(timing{Op: "all_reduce max", How: "graph", Type: "bf16", Ranks: ranks, Size: int64(bytes), TimeUs: us})
		if bytes <= kernels.SmallBytes {
			x.loop(w, bytes)
		}
		if ranks == 8 {
			x.forms(w, bytes)
		}
		us = x.graph(w, 100, func(c *comm.Comm, s comm.Stream) func(int) error {
			b := x.filled(c, dtype.BF16, 1, bytes/2)
			out := x.filled(c, dtype.BF16, 1, bytes/2)
			return func(int) error { return c.AllReduce(s, out, b, comm.Sum) }
		})
		x.add(timing{Op: "all_reduce", How: "graph", Type: "bf16", Ranks: ranks, Size: int64(bytes), TimeUs: us})
		us = x.graph(w, 100, func(c *comm.Comm, s comm.Stream) func(int) error {
			b := x.filled(c, dtype.BF16, 1, max(8, bytes/2/ranks))
			out := x.filled(c, dtype.BF16, ranks, max(8, bytes/2/ranks))
			return func(int) error { return c.AllGather(s, out, b) }
		})
		x.add(timing{Op: "all_gather", How: "graph", Type: "bf16", Ranks: ranks, Size: int64(bytes), TimeUs: us})
	}
	require.NoError(x.t, w.Close(context.Background()))
}

// vector returns the arguments of an all-reduce of bytes of bf16, which go round what Do chooses.
func (x *timings) vector(c *comm.Comm, bytes int) *kernels.Args {
	src, dst := x.filled(c, dtype.BF16, 1, bytes/2), x.filled(c, dtype.BF16, 1, bytes/2)
	a := &kernels.Args{Ctl: uint64(c.Conn().(*conn).ctl), Shared: 1, Entry: kernels.Entry{Signature: 78, NumParts: 1}}
	size := int64(bytes)
	a.Entry.Parts[0] = kernels.Part{Src: uint64(src.Addr()), Dst: uint64(dst.Addr()), SrcStride: size, DstStride: size,
		SrcRows: 1, DstRows: 1, Cols: uint32(bytes / 2), DTyp: uint32(dtype.BF16)}
	a.SetEntryWords()
	return a
}

// loop repeats a small all-reduce inside one launch.
func (x *timings) loop(w *comm.World, bytes int) {
	const rounds = 500
	us := x.run(w, 9, func(c *comm.Comm, s comm.Stream, st *cuda.Stream) func() error {
		in, a := c.Conn().(*conn), x.vector(c, bytes)
		return func() error { return in.r.gpu.kernels.Small(st, a, in.r.gpu.blocks, rounds) }
	})
	x.add(timing{Op: "all_reduce", How: "kernel", Type: "bf16", Ranks: w.Size(), Size: int64(bytes), TimeUs: us / rounds, Note: "one of 500 in one launch"})
}

// forms compares the all-reduce's forms and blocks in a graph.
func (x *timings) forms(w *comm.World, bytes int) {
	for _, form := range []string{"push", "slices"} {
		if form == "push" && bytes > kernels.SmallBytes {
			continue
		}
		for _, blocks := range []int{1, 4, 16} {
			us := x.graph(w, 100, func(c *comm.Comm, s comm.Stream) func(int) error {
				in, a := c.Conn().(*conn), x.vector(c, bytes)
				st, err := in.r.streams.Of(s)
				require.NoError(x.t, err)
				return func(int) error {
					if form == "push" {
						return in.r.gpu.kernels.Small(st, a, blocks, 1)
					}
					return in.r.gpu.kernels.Collective(st, a, w.Size(), blocks)
				}
			})
			x.add(timing{Op: "all_reduce " + form, How: "graph", Type: "bf16", Ranks: w.Size(), Size: int64(bytes), TimeUs: us, Note: fmt.Sprintf("%d blocks at most", blocks)})
		}
	}
}

// filled returns memory with a pattern that is not constant.
func (x *timings) filled(c *comm.Comm, t dtype.DType, rows, cols int) comm.Buffer {
	b, err := comm.Alloc(c, t, rows, cols)
	require.NoError(x.t, err)
	n := rows * cols * t.Size()
	g := c.Conn().(*conn).r.gpu
	for i := range min(64, n/64) { // stripes of different small numbers
		lo, hi := n/64*i, n/64*(i+1)
		require.NoError(x.t, g.aside(func(s *cuda.Stream) error { return s.Fill(b.Addr()+uintptr(lo), byte(0x30+i%16), hi-lo) }))
	}
	return b
}

// enqueue is what a call costs the host, without waiting.
func (x *timings) enqueue() {
	w := x.open(1)
	c := w.Local()[0]
	b := x.filled(c, dtype.BF16, 1, 4096)
	var times []float64
	for range 20 {
		start := time.Now()
		for range 100 {
			require.NoError(x.t, c.AllReduce(comm.Stream{}, b, b, comm.Sum))
		}
		times = append(times, float64(time.Since(start))/1e3/100)
		require.NoError(x.t, c.Wait(context.Background(), comm.Stream{}))
	}
	slices.Sort(times)
	x.add(timing{Op: "enqueue", How: "host", Ranks: 1, TimeUs: times[len(times)/2], Note: "all_reduce of 8 KiB, one rank, host time of a call"})
	in := c.Conn().(*conn)
	times = nil
	for range 20 {
		start := time.Now()
		for range 100 {
			require.NoError(x.t, in.r.gpu.kernels.Collective(in.r.streams.Own, in.args, 1, 1))
		}
		times = append(times, float64(time.Since(start))/1e3/100)
		require.NoError(x.t, c.Wait(context.Background(), comm.Stream{}))
	}
	slices.Sort(times)
	x.add(timing{Op: "launch", How: "host", Ranks: 1, TimeUs: times[len(times)/2], Note: "the launch alone"})
	require.NoError(x.t, w.Close(context.Background()))
}
