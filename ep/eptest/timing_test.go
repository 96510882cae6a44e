package eptest_test

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
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/internal/kernels"
	"github.com/weftgo/weft/internal/turnstile"
)

// row is one line of the results.
type row struct {
	Record  string  `json:"record"`
	Op      string  `json:"op"`
	How     string  `json:"how"` // "stream": everything enqueued before it begins; "graph": one of several in a graph
	Tokens  int     `json:"tokens"`
	Ranks   int     `json:"ranks"`
	Copies  float64 `json:"copies,omitempty"` // of a token
	TimeUs  float64 `json:"time_us"`
	FloorUs float64 `json:"floor_us,omitempty"`
	OfFloor float64 `json:"of_floor,omitempty"`
}

const (
	timedRanks, timedHidden, timedExperts, timedTopK = 8, 4096, 128, 8
	timedRowBytes                                    = 2 * timedHidden
)

type timer struct {
	t    *testing.T
	file *os.File
	dev  *cuda.Device
	rate float64 // bytes a second of a stream's copy, read and written
}

func (x *timer) add(r row, bytes float64) {
	r.Record, r.Ranks = "row", timedRanks
	if bytes > 0 {
		r.FloorUs = bytes / x.rate * 1e6
		r.OfFloor = r.FloorUs / r.TimeUs
	}
	x.t.Logf("%-26s %-6s %6d tokens %9.2f us floor %8.2f ratio %.3f", r.Op, r.How, r.Tokens, r.TimeUs, r.FloorUs, r.OfFloor)
	b, err := json.Marshal(r)
	require.NoError(x.t, err)
	_, err = fmt.Fprintf(x.file, "%s\n", b)
	require.NoError(x.t, err)
}

// TestTiming measures dispatch and combine on GPU 0; it runs when WEFT_TIMING names the results file.
func TestTiming(t *testing.T) {
	name := os.Getenv("WEFT_TIMING")
	if name == "" {
		t.Skip("set WEFT_TIMING to the file for the results")
	}
	x := &timer{t: t, dev: gputest.Device(t)}
	var err error
	x.file, err = os.Create(name)
	require.NoError(t, err)
	defer x.file.Close()
	fmt.Fprintf(x.file, `{"record":"header","tool":"alltoall timing","gpu":%q,"time":%q}`+"\n", x.dev.Info().Name, time.Now().UTC().Format(time.RFC3339))
	x.ceiling()
	w := openGPU(t, timedRanks, 20*time.Second)
	for _, n := range []int{64, 256, 1024, 4096, 8192, 16384, 32768} {
		base := ep.Config{NumExperts: timedExperts, TopK: timedTopK, Hidden: timedHidden, MaxTokensPerRank: n / timedRanks, DType: dtype.BF16}
		partial := base
		partial.Output = ep.PartialRows
		x.pair(w, "rows", "partial rows", partial, 1, 1)
		x.pair(w, "rows", "expert rows pulled", base, 1, 8)
		t.Setenv("WEFT_COMBINE_PULL", "0")
		x.pair(w, "rows", "expert rows pre-summed", base, 1, 10)
		for _, warps := range []int{12, 16, 24} {
			kernels.Trial.PartialThreads = 32 * warps
			x.pair(w, "rows", fmt.Sprintf("expert rows pre-summed, %d warps", warps), base, 1, 10)
		}
		kernels.Trial.PartialThreads = 0
		os.Unsetenv("WEFT_COMBINE_PULL")
		narrow := partial
		narrow.Hidden = 16
		x.pair(w, "32-byte rows: index and counts", "32-byte rows", narrow, 0, 0)
		if base.MaxTokensPerRank <= ep.MaxLowLatencyTokens {
			low := base
			low.LowLatency = true
			x.pair(w, "low latency", "low latency, expert rows", low, 1, 10)
			low.Output = ep.PartialRows
			x.pair(w, "low latency", "low latency, partial rows", low, 1, 2)
		}
		base.Layout = ep.Expanded
		x.pair(w, "expanded", "expert rows pulled", base, 8, 8)
		fp8 := partial
		fp8.Wire = dtype.F8E4M3
		x.pair(w, "rows fp8", "partial rows", fp8, 2, 1)
		kernels.Trial.NarrowByUnits = true
		x.pair(w, "rows fp8 through registers", "partial rows", fp8, 2, 1)
		kernels.Trial.NarrowByUnits = false
	}
	require.NoError(t, w.Close(context.Background()))
}

// ceiling is a stream's memcpy of 2 GiB.
func (x *timer) ceiling() {
	const bytes = 2 << 30
	a, err := x.dev.Alloc(bytes)
	require.NoError(x.t, err)
	b, err := x.dev.Alloc(bytes)
	require.NoError(x.t, err)
	s, err := x.dev.NewStream(0)
	require.NoError(x.t, err)
	require.NoError(x.t, s.Fill32(a, 0x3f8ccccd, bytes/4))
	us := x.between(s, 7, 1, func(mark func(int)) error {
		mark(0)
		err := s.Copy(b, a, bytes)
		mark(1)
		return err
	})[0]
	x.rate = 2 * bytes / us * 1e6
	x.add(row{Op: "memcpy", How: "stream", TimeUs: us}, 2*bytes)
	require.NoError(x.t, errors.Join(x.dev.Free(a), x.dev.Free(b), s.Close()))
}

// between returns the medians of the times between marks 0, 1, ... n of fn.
func (x *timer) between(s *cuda.Stream, reps, n int, fn func(mark func(int)) error) []float64 {
	events := make([]*cuda.Event, n+1)
	for i := range events {
		var err error
		events[i], err = x.dev.NewEvent(true)
		require.NoError(x.t, err)
	}
	times := make([][]float64, n)
	for rep := range reps + 2 {
		require.NoError(x.t, fn(func(i int) { require.NoError(x.t, events[i].Record(s)) }))
		require.NoError(x.t, events[n].Wait(context.Background()))
		for i := range n {
			d, err := events[i+1].Since(events[i])
			require.NoError(x.t, err)
			if rep >= 2 {
				times[i] = append(times[i], float64(d)/1e3)
			}
		}
	}
	medians := make([]float64, n)
	for i, list := range times {
		slices.Sort(list)
		medians[i] = list[len(list)/2]
	}
	for _, e := range events {
		require.NoError(x.t, e.Close())
	}
	return medians
}

// filled returns memory with stripes of different small numbers.
func (x *timer) filled(s *cuda.Stream, b comm.Buffer) error {
	bytes := int(b.SizeBytes())
	if bytes < 4096 {
		return s.Fill(b.Addr(), 0x3c, bytes)
	}
	const stripes = 64
	for i := range stripes {
		lo, hi := bytes/stripes*i, bytes/stripes*(i+1)
		if err := s.Fill(b.Addr()+uintptr(lo), byte(0x30+i%16), hi-lo); err != nil {
			return err
		}
	}
	return nil
}

// run is what a rank needs to time its problem: steps that line up with the other ranks'.
type run struct {
	*problem
	x     *timer
	c     *comm.Comm
	y     comm.Buffer
	gate  *turnstile.Turnstile
	aux   *cuda.Stream // releases all ranks' streams
	auxMu *sync.Mutex
	word  uintptr // of this rank: its stream waits for turn there
	turn  uint32
}

// held enqueues fn behind a word and a barrier, and releases all ranks when all have enqueued: no time of the host is in it.
func (r *run) held(fn func() error) error {
	r.turn++
	err := errors.Join(r.stream.WaitValue(r.word, r.turn), r.c.Barrier(r.s), fn())
	r.gate.Pass()
	r.auxMu.Lock()
	defer r.auxMu.Unlock()
	return errors.Join(err, r.aux.WriteValue(r.word, r.turn))
}

const graphPairs = 10

// graph makes an executable of several calls of fn.
func (r *run) graph(ctx context.Context, fn func() error) (*cuda.Exec, error) {
	g, err := r.stream.Capture(func() error {
		for range graphPairs {
			if err := fn(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	exec, err := g.Instantiate()
	if err != nil {
		return nil, err
	}
	return exec, errors.Join(g.Close(), exec.Upload(r.stream), r.stream.Wait(ctx))
}

// dispatch enqueues a dispatch whose result nobody takes.
func (r *run) dispatch() error {
	got, err := r.problem.x.Dispatch(r.s, r.in, ep.Routing{IDs: r.ids, Weights: r.w})
	if err == nil {
		r.y = got.Y
		got.Release()
	}
	return err
}

// pair enqueues a dispatch and a combine.
func (r *run) pair() error {
	got, err := r.problem.x.Dispatch(r.s, r.in, ep.Routing{IDs: r.ids, Weights: r.w})
	if err != nil {
		return err
	}
	return r.problem.x.Combine(r.s, r.out, got.Y, got)
}

// times returns a rank's medians of a dispatch, and of a dispatch and a combine, in graphs.
func (r *run) times(ctx context.Context) (us [2]float64, err error) {
	if err := errors.Join(r.dispatch(), r.pair()); err != nil {
		return us, err
	}
	if err := errors.Join(r.x.filled(r.stream, r.y), r.c.Wait(ctx, r.s)); err != nil {
		return us, err
	}
	var exec [2]*cuda.Exec
	for i, fn := range []func() error{r.dispatch, r.pair} {
		if exec[i], err = r.graph(ctx, fn); err != nil {
			return us, err
		}
	}
	r.gate.Pass()
	for i := range exec {
		us[i] = r.x.between(r.stream, 5, 1, func(mark func(int)) error {
			return r.held(func() error {
				mark(0)
				err := exec[i].Launch(r.stream)
				mark(1)
				return err
			})
		})[0] / graphPairs
		r.gate.Pass()
	}
	return us, errors.Join(r.c.Wait(ctx, r.s), exec[0].Close(), exec[1].Close())
}

// pair times one dispatch and one combine. there and back say how many rows a token moves: 1 means 1 + D, 8 means 1 + 8, 10
// means 1 + 8 + 2D, 2 means a row and D rows of fp8.
func (x *timer) pair(w *comm.World, layout, output string, cfg ep.Config, there, back int) {
	words, err := x.dev.Alloc(4 * timedRanks)
	require.NoError(x.t, err)
	aux, err := x.dev.NewStream(0)
	require.NoError(x.t, err)
	require.NoError(x.t, aux.Fill32(words, 0, timedRanks))
	require.NoError(x.t, aux.Wait(context.Background()))
	g := turnstile.New(timedRanks)
	var mu, auxMu sync.Mutex
	var worst [2]float64
	copies, n := 0.0, cfg.MaxTokensPerRank*timedRanks
	require.NoError(x.t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		p, err := x.problem(ctx, c, cfg)
		if err != nil {
			return err
		}
		r := &run{problem: p, x: x, c: c, gate: g, aux: aux, auxMu: &auxMu, word: words + uintptr(4*c.Rank())}
		us, err := r.times(ctx)
		if err != nil {
			return err
		}
		mu.Lock()
		for i := range worst {
			worst[i] = max(worst[i], us[i])
		}
		copies += p.copies / timedRanks
		mu.Unlock()
		return errors.Join(x.stamps(ctx, c, p, n), p.free(ctx, c))
	}))
	require.NoError(x.t, errors.Join(aux.Wait(context.Background()), aux.Close(), x.dev.Free(words)))
	x.add(row{Op: "dispatch " + layout, How: "graph", Tokens: n, Copies: copies, TimeUs: worst[0]}, moved(n, there, copies))
	x.add(row{Op: "combine " + output, How: "graph, pair less dispatch", Tokens: n, Copies: copies, TimeUs: worst[1] - worst[0]}, moved(n, back, copies))
	x.add(row{Op: layout + " + " + output, How: "graph", Tokens: n, Copies: copies, TimeUs: worst[1]}, moved(n, there, copies)+moved(n, back, copies))
}

// stamps logs when block 0 of rank 1 came to the phases of its latest dispatch, in cycles from its first, in a build that
// notes them.
func (x *timer) stamps(ctx context.Context, c *comm.Comm, p *problem, n int) error {
	if os.Getenv("WEFT_KERNEL_STAMPS") != "1" || c.Rank() != 1 {
		return nil
	}
	all := p.x.Dev.Stats
	host := make([]int64, all.Cols())
	err := comm.Copy(c, comm.Stream{}, comm.Of(host, len(host)), all)
	if err == nil {
		at := host[len(host)-kernels.NumStamps:]
		text := ""
		for _, v := range at {
			text += fmt.Sprintf(" %d", v-at[0])
		}
		x.t.Logf("stamps %d tokens:%s", n, text)
	}
	return err
}

// moved is the bytes of pair's kinds.
func moved(n, kind int, copies float64) float64 {
	r := float64(n) * timedRowBytes
	switch kind {
	case 0:
		return 0
	case 1:
		return r * (1 + copies)
	case 2:
		return float64(n) * (timedRowBytes + copies*(timedHidden+timedHidden/128*4))
	case 8:
		return r * (1 + 8)
	default:
		return r * (1 + 8 + 2*copies)
	}
}
