package trace

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weftgo/weft/comm"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

const ms = time.Millisecond

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// busy spends time inside a span.
func busy(l *Lane, kind Kind, name string, d time.Duration) {
	s := l.Begin(kind, name)
	time.Sleep(d)
	s.End()
}

// A step of 10 ms with 3 ms of experts, a collective of 4 ms of which 1.5 are
// waits, and 3 ms of neither; before it 2 ms of agreement; the other rank does
// 1 ms in all.
func TestBreakdownCountsEachMomentOnce(t *testing.T) {
	for name, option := range map[string]Option{"totals": Totals, "spans": MaxEvents(100), "full": MaxEvents(1)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := New(2, option)
				time.Sleep(time.Hour) // before any span: not in the window
				l := r.Rank(0)
				busy(l, Wait, "lockstep", 2*ms)
				time.Sleep(5 * ms) // idle
				step := l.BeginStep(1, 10, 2, 2)
				time.Sleep(3 * ms)
				busy(l, Compute, "experts", 3*ms)
				collective := l.Begin(Collective, "all_reduce")
				time.Sleep(2500 * time.Microsecond)
				busy(l, Wait, "peers", 1500*time.Microsecond)
				collective.End()
				step.End()
				busy(r.Rank(1), Step, DummyStep, ms)

				b := r.Breakdown()
				b[0].NumDropped, b[1].NumDropped = 0, 0
				require.Equal(t, []Breakdown{{
					Rank: 0, Window: 18 * ms, Compute: 6 * ms, Collective: 2500 * time.Microsecond,
					Wait: 3500 * time.Microsecond, Idle: 6 * ms, NumSteps: 1, NumCollectives: 1,
				}, {
					Rank: 1, Window: 18 * ms, Compute: ms, Idle: 17 * ms, NumDummySteps: 1,
				}}, b)
				require.Equal(t, 12*ms, b[0].Busy())
				require.Equal(t, []NameTotal{
					{Step, "execute", 1, 3 * ms, 0},
					{Compute, "experts", 1, 3 * ms, 0},
					{Collective, "all_reduce", 1, 2500 * time.Microsecond, 0},
					{Wait, "lockstep", 1, 2 * ms, 0},
					{Wait, "peers", 1, 1500 * time.Microsecond, 0},
					{Step, DummyStep, 1, ms, 0},
				}, r.ByName())
			})
		})
	}
}

// fakeConn takes 4 ms a call, 1 ms of it waiting.
type fakeConn struct {
	comm.Conn
	err error
}

func (fakeConn) Device() comm.Device { return comm.Device{} }
func (f fakeConn) Do(_ comm.Stream, op *comm.Op) error {
	time.Sleep(4 * ms)
	op.Stats = comm.OpStats{Launches: 1, SentBytes: 100, Wait: ms}
	return f.err
}
func (f fakeConn) Split(context.Context, int, int) (comm.Conn, int, int, error) {
	return fakeConn{}, 0, 1, nil
}

// tracers are the ways to make collectives of rank 3 spans.
var tracers = map[string]func(r *Recorder) comm.Tracer{
	"recorder": func(r *Recorder) comm.Tracer { return r },
	"lane":     func(r *Recorder) comm.Tracer { return r.Rank(3).Tracer() },
}

func TestCollectivesOfAComm(t *testing.T) {
	for name, tracer := range tracers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := New(4)
				c := comm.New(fakeConn{}, 3, 4)
				c.SetTracer(tracer(r))
				step := r.Rank(3).BeginStep(0, 0, 1, 1)
				require.NoError(t, c.Barrier(comm.Stream{}))
				time.Sleep(2 * ms)
				require.NoError(t, c.Barrier(comm.Stream{}))
				step.End()
				require.Equal(t, Breakdown{
					Rank: 3, Window: 10 * ms, Compute: 2 * ms, Collective: 6 * ms, Wait: 2 * ms,
					NumSteps: 1, NumCollectives: 2, NumLaunches: 2, SentBytes: 200,
				}, r.Breakdown()[3])
				require.Equal(t, NameTotal{Collective, "barrier", 2, 6 * ms, 2 * ms}, r.ByName()[0])

				f := parse(t, r)
				require.Equal(t, map[string]any{"seq": 2.0, "launches": 1.0, "sent_bytes": 100.0, "wait_us": 1000.0},
					f.spans("barrier")[1].Args)
			})
		})
	}
}

// A group made by Split numbers its ranks from 0; its collectives belong to the
// lane of the world's rank that runs them all the same.
func TestGroupsStayOnTheirLane(t *testing.T) {
	for name, tracer := range tracers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := New(4)
				c := comm.New(fakeConn{}, 3, 4)
				c.SetTracer(tracer(r))
				group, err := c.Split(t.Context(), 0, 0)
				require.NoError(t, err)
				require.Zero(t, group.Rank())
				require.NoError(t, group.Barrier(comm.Stream{}))
				require.Zero(t, r.Breakdown()[0].NumCollectives)
				require.EqualValues(t, 1, r.Breakdown()[3].NumCollectives)
			})
		})
	}
}

func TestAFailedCollectiveSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(1)
		c := comm.New(fakeConn{err: errors.New("rank 2 is gone")}, 0, 4)
		c.SetTracer(r.Rank(0).Tracer())
		require.Error(t, c.Barrier(comm.Stream{}))
		require.Equal(t, "rank 2 is gone", parse(t, r).spans("barrier")[0].Args["error"])
	})
}

func TestEndClosesWhatWasLeftOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(1)
		l := r.Rank(0)
		outer := l.Begin(Step, "outer")
		inner := l.Begin(Compute, "inner")
		time.Sleep(ms)
		outer.End()
		inner.End() // too late, and no harm
		outer.End() // a second time
		later := l.Begin(Compute, "later")
		inner.End() // its depth is taken by another span now
		time.Sleep(ms)
		later.End()
		require.Equal(t, 2*ms, r.Breakdown()[0].Compute)
		require.Equal(t, []NameTotal{{Compute, "inner", 1, ms, 0}, {Compute, "later", 1, ms, 0}, {Step, "outer", 1, 0, 0}},
			r.ByName())
	})
}

func TestAReportedWaitIsAtMostTheCollective(t *testing.T) {
	r := New(1)
	r.Rank(0).Collective("recv", 0, 2*ms, time.Hour, 1)
	r.Rank(0).Collective("recv", 2*ms, 2*ms, -ms, 1)
	b := r.Breakdown()[0]
	require.Equal(t, 2*ms, b.Wait)
	require.Equal(t, 2*ms, b.Collective)
	require.Equal(t, 4*ms, b.Window)
}

func TestResetForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(1, MaxEvents(2))
		l := r.Rank(0)
		open := l.Begin(Step, "old")
		for range 5 {
			busy(l, Compute, "old", ms)
		}
		require.EqualValues(t, 4, r.Breakdown()[0].NumDropped)
		r.Reset()
		open.End()
		require.Equal(t, []Breakdown{{}}, r.Breakdown())
		require.Empty(t, r.ByName())
		busy(l, Compute, "new", 3*ms)
		require.Equal(t, []Breakdown{{Window: 3 * ms, Compute: 3 * ms}}, r.Breakdown())
		require.Len(t, parse(t, r).spans("new"), 1)
		require.Empty(t, parse(t, r).spans("old"))
	})
}

func TestStreamsHaveLanesOfTheirOwn(t *testing.T) {
	r := New(2)
	require.Same(t, r.Rank(1), r.Stream(1, 0))
	copies := r.Stream(1, 7)
	require.Same(t, copies, r.Stream(1, 7))
	require.NotSame(t, copies, r.Stream(0, 7))
	copies.Record(Compute, "copy", 2*ms, 4*ms)
	r.Rank(0).Record(Compute, "gemm", ms, ms)
	b := r.Breakdown()
	require.Len(t, b, 4)
	require.Equal(t, Breakdown{Rank: 1, Stream: 7, Window: 5 * ms, Compute: 4 * ms, Idle: ms}, b[2])
	require.Equal(t, "rank 1 stream 7: compute 100.0%, collective 0.0%, wait 0.0% of 4ms busy; idle 1ms", b[2].String())
	require.PanicsWithValue(t, "trace: rank 2 of a recorder for 2 ranks", func() { r.Rank(2) })
	require.PanicsWithValue(t, "trace: -1 ranks", func() { New(-1) })
}

func TestManyNamesEndInOther(t *testing.T) {
	r := New(1, Totals)
	for i := range 100 {
		r.Rank(0).Record(Compute, string(rune('A'+i)), 0, ms)
		r.Rank(0).Record(Collective, string(rune('A'+i)), 0, ms)
	}
	other := make(map[Kind]int64)
	var all int64
	for _, total := range r.ByName() {
		all += total.Count
		if total.Name == OtherNames {
			other[total.Kind] = total.Count
		}
	}
	require.EqualValues(t, 200, all)
	require.Equal(t, map[Kind]int64{Compute: 68, Collective: 68}, other)
}

// Whatever the nesting, the parts add up to the time that some span was open.
func TestPartsAddUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := New(1, MaxEvents(rapid.IntRange(0, 5).Draw(rt, "max")))
		l := r.Rank(0)
		var open []Span
		kind := rapid.SampledFrom([]Kind{Step, Compute, Collective, Wait})
		var covered, at time.Duration
		ops := rapid.SliceOfN(rapid.IntRange(0, 2), 1, 60).Draw(rt, "ops")
		clock := l.start
		for _, o := range ops {
			switch {
			case o == 0:
				open = append(open, l.Begin(kind.Draw(rt, "kind"), "x"))
			case o == 1 && len(open) > 0:
				i := rapid.IntRange(0, len(open)-1).Draw(rt, "which")
				open[i].End()
				open = open[:i]
			default: // time passes: the clock's zero moves back
				d := time.Duration(rapid.IntRange(1, 50).Draw(rt, "hours")) * time.Hour
				clock = clock.Add(-d)
				l.start = clock
				at += d
				if len(open) > 0 {
					covered += d
				}
			}
		}
		if len(open) > 0 {
			open[0].End()
		}
		b := r.Breakdown()[0]
		require.Equal(rt, covered, b.Busy().Round(time.Hour))
		require.LessOrEqual(rt, b.Window.Round(time.Hour), at)
		require.Equal(rt, b.Window, b.Busy()+b.Idle)
	})
}

func TestReadingWhileRanksRecord(t *testing.T) {
	r := New(4, MaxEvents(3000))
	stop := make(chan struct{})
	var writers, readers sync.WaitGroup
	for rank := range 4 {
		writers.Go(func() {
			l := r.Rank(rank)
			for i := range 2000 {
				step := l.BeginStep(i, i, i, i)
				l.Begin(Compute, "x").End()
				l.Mark("m")
				r.Stream(rank, 1).Record(Compute, "y", l.Now(), 1)
				step.End()
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					parse(t, r)
					r.Breakdown()
					r.ByName()
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	for _, b := range r.Breakdown()[:4] {
		require.EqualValues(t, 2000, b.NumSteps)
		require.EqualValues(t, 3000, b.NumDropped)
	}
}
