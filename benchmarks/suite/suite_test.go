package suite

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, ranks int) *comm.World {
	w, err := local.Open(local.Config{Ranks: ranks})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close(context.Background())) })
	return w
}

// flip is a driver that spoils one bit of one element of what one rank receives.
type flip struct {
	comm.Conn
	at int
}

func (f flip) Do(s comm.Stream, op *comm.Op) error {
	if err := f.Conn.Do(s, op); err != nil || op.Kind == comm.Barrier || op.Kind == comm.Send {
		return err
	}
	if dst := op.Parts[0].Dst; dst.Rows() > f.at {
		dst.RowBytes(f.at)[0] ^= 1
	}
	return nil
}

// flipped is a world in which rank bad spoils element at.
func flipped(t *testing.T, ranks, bad, at int) *comm.World {
	var comms []*comm.Comm
	for r, c := range open(t, ranks).Local() {
		conn := c.Conn()
		if r == bad {
			conn = flip{conn, at}
		}
		comms = append(comms, comm.New(conn, r, ranks))
	}
	return comm.NewWorld(comms)
}

func forms(op *Operation) []bool {
	var forms []bool
	if op.OutOfPlace {
		forms = append(forms, false)
	}
	if op.InPlace {
		forms = append(forms, true)
	}
	return forms
}

// everySetup calls fn for every operation, form, load and a few worlds.
func everySetup(t *testing.T, worlds []int, fn func(t *testing.T, ranks int, s Setup, inPlace bool)) {
	for i := range Operations {
		op := &Operations[i]
		for _, ranks := range worlds {
			for _, load := range []Load{{}, {Skew: 0.6}, {Zeros: true}} {
				if ranks < op.MinRanks || load != (Load{}) && !op.Ragged {
					continue
				}
				for _, inPlace := range forms(op) {
					t.Run(fmt.Sprintf("%s/%d ranks/%v/in place %v", op.Name, ranks, load, inPlace), func(t *testing.T) {
						fn(t, ranks, Setup{Op: op, Type: dtype.F32, Load: load, Root: ranks - 1, Seed: 7}, inPlace)
					})
				}
			}
		}
	}
}

func TestEveryOperationIsRight(t *testing.T) {
	everySetup(t, []int{1, 2, 3, 8}, func(t *testing.T, ranks int, s Setup, inPlace bool) {
		b, err := New(open(t, ranks), s)
		require.NoError(t, err)
		sizes := []int64{0, 4, 400}
		if ranks == 3 && !testing.Short() {
			sizes = append(sizes, 70000*4) // beyond the period of the inputs
		}
		for _, size := range sizes {
			res, err := b.Measure(context.Background(), size, inPlace, Timing{Iters: 2, Agg: 2}, 2)
			require.NoError(t, err)
			require.Equal(t, 2, res.Times.N)
			require.Positive(t, res.TimeUs)
			if s.Op.Name == "barrier" {
				require.EqualValues(t, -1, res.Wrong)
				continue
			}
			require.Zero(t, res.Wrong)
			require.InDelta(t, res.AlgBW*s.Op.Factor(ranks), res.BusBW, 1e-9)
		}
	})
}

// One spoilt element on one rank is one wrong element, whatever the operation.
func TestOneWrongElementIsCounted(t *testing.T) {
	const ranks, at = 3, 5
	everySetup(t, []int{ranks}, func(t *testing.T, _ int, s Setup, inPlace bool) {
		if s.Op.Name == "barrier" {
			t.Skip("moves no data")
		}
		bad := 2
		if s.Load.Zeros || s.Load.Skew > 0 {
			bad = 0 // a rank that receives something
		}
		b, err := New(flipped(t, ranks, bad, at), s)
		require.NoError(t, err)
		res, err := b.Measure(context.Background(), 4000, inPlace, Timing{Iters: 1}, 1)
		require.NoError(t, err)
		require.EqualValues(t, 1, res.Wrong)
	})
}

func TestEveryTypeAndReduction(t *testing.T) {
	for _, dt := range dtype.All() {
		for _, redop := range []comm.ReduceOp{comm.Sum, comm.Prod, comm.Min, comm.Max, comm.Avg} {
			for _, ranks := range []int{2, 7} {
				for _, name := range []string{"all_reduce", "reduce_scatterv"} {
					op, err := Find(name)
					require.NoError(t, err)
					b, err := New(open(t, ranks), Setup{Op: op, Type: dt, Redop: redop, Unalign: 1})
					if redop == comm.Avg && !dt.IsFloat() {
						require.ErrorContains(t, err, "avg needs a floating-point type")
						continue
					}
					require.NoError(t, err)
					res, err := b.Measure(context.Background(), 3000, true, Timing{Iters: 1}, 1)
					require.NoError(t, err, "%v %v", dt, redop)
					require.Zero(t, res.Wrong, "%s %v %v %d ranks", name, dt, redop, ranks)
				}
			}
		}
	}
}

// The timed loop measures the operation alone: a call through the table allocates nothing.
func TestCallsAllocateNothing(t *testing.T) {
	for i := range Operations {
		op := &Operations[i]
		if op.MinRanks > 1 {
			continue
		}
		w := open(t, 1)
		b, err := New(w, Setup{Op: op, Type: dtype.F32})
		require.NoError(t, err)
		_, err = b.Reserve(256)
		require.NoError(t, err)
		c, x := w.Local()[0], b.arrange(w.Local()[0], b.ShapeOf(256), !op.OutOfPlace)
		require.Zero(t, testing.AllocsPerRun(10, func() { require.NoError(t, op.run(c, x)) }), op.Name)
	}
}

func TestFactors(t *testing.T) {
	want := map[string]float64{"all_reduce": 1.75, "all_gather": 0.875, "all_gatherv": 0.875, "reduce_scatter": 0.875,
		"reduce_scatterv": 0.875, "alltoall": 0.875, "alltoallv": 0.875, "broadcast": 1, "reduce": 1, "sendrecv": 1, "barrier": 1}
	require.Len(t, Operations, len(want))
	for _, op := range Operations {
		require.Equal(t, want[op.Name], op.Factor(8), op.Name)
	}
	_, err := Find("gather")
	require.ErrorContains(t, err, `no operation "gather"; there are all_reduce, all_gather`)
}

func TestSharesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Load{Skew: rapid.SampledFrom([]float64{0, 0.1, 0.5, 0.77, 1}).Draw(t, "skew"), Zeros: rapid.Bool().Draw(t, "zeros")}
		n, ranks := rapid.IntRange(0, 5000).Draw(t, "n"), rapid.IntRange(1, 64).Draw(t, "ranks")
		counts := l.Shares(n, ranks)
		require.Len(t, counts, ranks)
		require.Equal(t, n, before(counts, ranks))
		require.GreaterOrEqual(t, slices.Min(counts), 0)
		for r := 1; r < ranks && l.Zeros; r += 2 {
			require.Zero(t, counts[r])
		}
		if l.Skew > 0 && ranks > 2 {
			require.InDelta(t, l.Skew*float64(n), counts[0], 0.5)
		}
	})
	require.Equal(t, []int{6, 2, 2}, Load{Skew: 0.6}.Shares(10, 3))
	require.Equal(t, []int{5, 0, 5, 0}, Load{Zeros: true}.Shares(10, 4))
	require.Error(t, Load{Skew: 1.5}.Validate())
}

func TestSizesRoundLikeNCCLTests(t *testing.T) {
	op, err := Find("all_gather")
	require.NoError(t, err)
	s := op.Shape(1000/4, 3, 4, Load{})
	require.Equal(t, 80, s.Count) // 83 elements a rank, rounded down to 16 bytes
	require.Equal(t, 240, s.Size())
	require.Zero(t, op.Shape(2, 2, 4, Load{}).Count)
	op, err = Find("alltoallv")
	require.NoError(t, err)
	s = op.Shape(100, 2, 4, Load{Skew: 0.75})
	require.Equal(t, 150, s.Algorithm) // what the busier rank receives
	require.Equal(t, []int{150, 50}, s.Recv)
}

func TestSpread(t *testing.T) {
	times := Times{Ranks: []float64{1, 2, 6}}
	require.Equal(t, []float64{1, 3, 1, 6}, []float64{times.Reduce(Rank0), times.Reduce(Mean), times.Reduce(Min), times.Reduce(Max)})
	for i := range 100 {
		times.Iters = append(times.Iters, float64(100-i))
	}
	s := times.Spread(0)
	require.Equal(t, []float64{1, 100, 50, 99}, []float64{s.Min, s.Max, s.P50, s.P99})
	require.InDelta(t, 57.16, s.CV, 0.01)
	require.Equal(t, 90.0, times.Spread(10).Max)
	require.Zero(t, times.Spread(100))
	require.Zero(t, Percentile(nil, 50))
}

func TestBudgetChoosesIterations(t *testing.T) {
	w := newStopwatch(1, Timing{Budget: 1000})
	require.Equal(t, []int{1000, MinIters, MaxIters}, []int{w.Choose(1), w.Choose(1000), newStopwatch(1, Timing{Budget: 1e9}).Choose(0)})
	w.Iters = 20
	require.Equal(t, 20, w.Choose(1))
	require.Error(t, Timing{Iters: -1}.Validate())
	require.Error(t, Timing{Average: 4}.Validate())
	require.NoError(t, Timing{Average: Max}.Validate())
}

func TestTimesOfEachIteration(t *testing.T) {
	op, err := Find("all_reduce")
	require.NoError(t, err)
	b, err := New(open(t, 2), Setup{Op: op, Type: dtype.F32})
	require.NoError(t, err)
	res, err := b.Measure(context.Background(), 64, false, Timing{Iters: 9, PerIter: true, Blocking: true, Average: Max}, 0)
	require.NoError(t, err)
	require.Len(t, res.Times.Iters, 9)
	require.Positive(t, slices.Min(res.Times.Iters))
	require.EqualValues(t, -1, res.Wrong)
}

func TestRefusals(t *testing.T) {
	ring, err := Find("sendrecv")
	require.NoError(t, err)
	_, err = New(open(t, 1), Setup{Op: ring, Type: dtype.F32})
	require.ErrorContains(t, err, "sendrecv needs 2 ranks")
	reduce, err := Find("reduce")
	require.NoError(t, err)
	_, err = New(open(t, 2), Setup{Op: reduce, Type: dtype.F32, Root: 2})
	require.ErrorContains(t, err, "root 2 is not in [0, 2)")
	b, err := New(open(t, 2), Setup{Op: ring, Type: dtype.F32})
	require.NoError(t, err)
	_, err = b.Measure(context.Background(), 8, true, Timing{Iters: 1}, 0)
	require.ErrorContains(t, err, "no such form")
}
