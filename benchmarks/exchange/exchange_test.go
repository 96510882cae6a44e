package exchange

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/benchmarks/suite"
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

var small = Setup{Tokens: []int{5, 0, 7}, Hidden: 136, Experts: 8, TopK: 3, Intermediate: 12, Type: dtype.F32, Seed: 4}

func TestLowLatencyIsExact(t *testing.T) {
	s := small
	s.Backend, s.LowLatency = "alltoall", true
	d, c, err := Exchange(context.Background(), open(t, 3), s, suite.Timing{Iters: 3}, 2)
	require.NoError(t, err)
	require.Zero(t, d.Wrong)
	require.Zero(t, c.Wrong)
	s.Tokens = []int{257, 0, 0}
	require.ErrorContains(t, s.Validate(), "LowLatency with MaxTokensPerRank 257 > 256")
}

func TestExchangeIsExact(t *testing.T) {
	for _, backend := range []string{"agrs", "alltoall"} {
		for _, dt := range []dtype.DType{dtype.F32, dtype.BF16, dtype.F16} {
			for _, fp8 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%v/fp8 %v", backend, dt, fp8), func(t *testing.T) {
					s := small
					s.Backend, s.Type, s.FP8 = backend, dt, fp8
					d, c, err := Exchange(context.Background(), open(t, 3), s, suite.Timing{Iters: 3}, 2)
					require.NoError(t, err)
					require.Zero(t, d.Wrong)
					require.Zero(t, c.Wrong)
					require.Equal(t, backend, d.Backend)
					require.Len(t, d.Iters, 3)
					require.Equal(t, d.CopiesPerToken, c.CopiesPerToken)
					if backend == "agrs" {
						require.Equal(t, 3.0, d.CopiesPerToken)
						require.InDelta(t, d.LogicalGBs*2/3, d.WireGBs, 1e-9)
					}
					require.LessOrEqual(t, d.WireGBs, d.LogicalGBs)
					bytes := float64(s.dispatchBytes()) * d.CopiesPerToken * 12 / 3
					require.InDelta(t, bytes/d.P50Us/1e3, d.LogicalGBs, 1e-9)
				})
			}
		}
	}
	require.Equal(t, 136+8, Setup{Hidden: 136, FP8: true}.dispatchBytes())
}

// flip spoils one element of what rank 1 receives in operations of one kind.
type flip struct {
	comm.Conn
	kind comm.OpKind
}

func (f flip) Do(s comm.Stream, op *comm.Op) error {
	if err := f.Conn.Do(s, op); err != nil || op.Kind != f.kind {
		return err
	}
	op.Parts[0].Dst.RowBytes(0)[0] ^= 1
	return nil
}

func TestWrongRowsAreCounted(t *testing.T) {
	var comms []*comm.Comm
	for r, c := range open(t, 3).Local() {
		conn := c.Conn()
		if r == 0 {
			conn = flip{conn, comm.ReduceScatterV}
		}
		comms = append(comms, comm.New(conn, r, 3))
	}
	s := small
	s.Backend = "agrs"
	d, c, err := Exchange(context.Background(), comm.NewWorld(comms), s, suite.Timing{Iters: 1}, 4)
	require.NoError(t, err)
	require.Zero(t, d.Wrong)
	require.EqualValues(t, 4, c.Wrong)
}

func TestLayerHasTheBitsOfTheReference(t *testing.T) {
	for _, backend := range []string{"agrs", "alltoall"} {
		s := small
		s.Backend, s.Zipf = backend, 1
		r, err := Layer(context.Background(), open(t, 3), s, suite.Timing{Iters: 2}, 1)
		require.NoError(t, err)
		require.Zero(t, r.Wrong)
		require.Equal(t, backend, r.Backend)

		// The router of the layer chooses what the problem says: the exchanger counts the same copies.
		d, _, err := Exchange(context.Background(), open(t, 3), s, suite.Timing{Iters: 1}, 0)
		require.NoError(t, err)
		require.Equal(t, d.CopiesPerToken, r.CopiesPerToken)
		require.Equal(t, d.MaxOverMean, r.MaxOverMean)
		require.EqualValues(t, -1, d.Wrong)
	}
	s := small
	s.Tokens = []int{3}
	r, err := Layer(context.Background(), open(t, 1), s, suite.Timing{Iters: 1}, 1)
	require.NoError(t, err)
	require.Equal(t, "none", r.Backend)
	require.Zero(t, r.Wrong)
}

// A layer that computes something else is not called right.
func TestLayerCheckCanFail(t *testing.T) {
	s := small
	m := &layerMeter{problem: newProblem(s), want: make([]byte, 12*s.combineBytes())}
	out, err := typed(make([]float32, 5*s.Hidden), s.Hidden, s.Type)
	require.NoError(t, err)
	comm.Row[float32](out, 2)[7] = 1
	m.compare(out, 0)
	require.EqualValues(t, 1, m.wrong.Load())
}

func TestChoices(t *testing.T) {
	s := Setup{Tokens: []int{4000, 4000}, Experts: 8, TopK: 1, Hidden: 8, Seed: 1}
	share := func(s Setup) []float64 {
		n := make([]float64, s.Experts)
		for r := range s.Tokens {
			for _, e := range s.choices(r) {
				n[e] += 1.0 / 8000
			}
		}
		return n
	}
	for e, got := range share(s) {
		require.InDelta(t, 0.125, got, 0.02, e)
	}
	s.Skew = 0.8
	got := share(s)
	require.InDelta(t, 0.8, got[0]+got[1]+got[2]+got[3], 0.02)
	s.Skew, s.Zipf = 0, 1
	got = share(s)
	require.InDelta(t, 2, got[0]/got[1], 0.25)
	s.Zipf, s.Skew, s.TopK = 0, 1, 8 // more choices than the busy rank has experts
	seen := map[int32]bool{}
	for _, e := range s.choices(0)[:8] {
		seen[e] = true
	}
	require.Len(t, seen, 8)
}

func TestRefuses(t *testing.T) {
	s := small
	s.Type = dtype.I32
	_, _, err := Exchange(context.Background(), open(t, 3), s, suite.Timing{Iters: 1}, 0)
	require.ErrorContains(t, err, "tokens of type i32")
	s = small
	s.Backend = "no"
	_, _, err = Exchange(context.Background(), open(t, 3), s, suite.Timing{Iters: 1}, 0)
	require.ErrorContains(t, err, `unknown exchanger "no"`)
	s = small
	s.Experts, s.Hidden = 200, 100
	_, err = Layer(context.Background(), open(t, 3), s, suite.Timing{Iters: 1}, 0)
	require.ErrorContains(t, err, "hidden 100 < 200 experts")
	require.False(t, Setup{Type: dtype.BF16, TopK: 10}.exact())
	require.True(t, Setup{Type: dtype.BF16, TopK: 9}.exact())
}
