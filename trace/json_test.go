package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weftgo/weft/comm"
)

// file is a trace file as read back.
type file struct {
	TraceEvents []struct {
		Ph, Name, Cat, S string
		Pid, Tid         int
		Ts, Dur          float64 // microseconds
		Args             map[string]any
	}
	OtherData map[string]string
}

type line = struct {
	Ph, Name, Cat, S string
	Pid, Tid         int
	Ts, Dur          float64
	Args             map[string]any
}

// spans returns the lines of that name, metadata apart.
func (f file) spans(name string) (out []line) {
	for _, e := range f.TraceEvents {
		if e.Ph != "M" && e.Name == name {
			out = append(out, e)
		}
	}
	return out
}

// names returns metadata of one sort by thread or process.
func (f file) names(sort string, by func(line) int) map[int]any {
	out := make(map[int]any)
	for _, e := range f.TraceEvents {
		if e.Ph == "M" && e.Name == sort {
			out[by(e)] = e.Args["name"]
		}
	}
	return out
}

func read(t testing.TB, text []byte) (f file) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	require.NoError(t, d.Decode(&f))
	require.False(t, d.More())
	return f
}

func parse(t testing.TB, r *Recorder) file {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, r.WriteJSON(&out))
	return read(t, out.Bytes())
}

func TestFileHoldsTheSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(2)
		time.Sleep(1234567 * time.Nanosecond)
		l := r.Rank(1)
		step := l.BeginStep(2, 700, 3, 3)
		time.Sleep(ms)
		busy(l, Compute, "a \"b\" <c> \\ \n é", ms)
		l.Mark("preempt")
		step.End()
		l.BeginDummyStep().End()
		r.Stream(1, 4).Record(Compute, "kernel", 5*ms, 1)
		l.Begin(Step, "unfinished")

		f := parse(t, r)
		pid := func(e line) int { return e.Pid }
		tid := func(e line) int { return e.Tid }
		require.Equal(t, map[int]any{1: "rank 0", 2: "rank 1"}, f.names("process_name", pid))
		require.Equal(t, map[int]any{1: "host", 2: "host", 3: "stream 4"}, f.names("thread_name", tid))

		require.Equal(t, []line{{Ph: "X", Name: "execute_context_2(700)_generation_3(3)", Cat: "step", Pid: 2, Tid: 2,
			Ts: 1234.567, Dur: 2000, Args: map[string]any{"context_requests": 2.0, "context_tokens": 700.0,
				"generation_requests": 3.0, "generation_tokens": 3.0}}}, f.spans(StepName(2, 700, 3, 3)))
		require.Equal(t, []line{{Ph: "X", Name: "a \"b\" <c> \\ \n é", Cat: "compute", Pid: 2, Tid: 2, Ts: 2234.567, Dur: 1000}},
			f.spans("a \"b\" <c> \\ \n é"))
		require.Equal(t, []line{{Ph: "i", S: "t", Name: "preempt", Pid: 2, Tid: 2, Ts: 3234.567}}, f.spans("preempt"))
		require.Equal(t, []line{{Ph: "X", Name: "dummy_step", Cat: "step", Pid: 2, Tid: 2, Ts: 3234.567}}, f.spans(DummyStep))
		require.Equal(t, []line{{Ph: "X", Name: "kernel", Cat: "compute", Pid: 2, Tid: 3, Ts: 5000, Dur: 0.001}},
			f.spans("kernel"))
		require.Equal(t, []line{{Ph: "B", Name: "unfinished", Cat: "step", Pid: 2, Tid: 2, Ts: 3234.567}},
			f.spans("unfinished"))
		require.Equal(t, "0", f.OtherData["dropped_events"])
	})
}

// Viewers nest spans of equal start by their order in the file.
func TestOuterSpansComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(1)
		outer := r.Rank(0).Begin(Step, "outer")
		busy(r.Rank(0), Compute, "inner", ms)
		outer.End()
		var order []string
		for _, e := range parse(t, r).TraceEvents {
			if e.Ph == "X" {
				order = append(order, e.Name)
			}
		}
		require.Equal(t, []string{"outer", "inner"}, order)
	})
}

func TestDroppedEventsAreReported(t *testing.T) {
	const keep, all = 3 * chunkEvents / 2, 4 * chunkEvents
	r := New(1, MaxEvents(keep))
	for i := range all {
		r.Rank(0).Record(Compute, "x", time.Duration(i)*ms, ms)
	}
	f := parse(t, r)
	require.Len(t, f.spans("x"), keep)
	require.Equal(t, "2560", f.OtherData["dropped_events"])
	note := f.spans("2560 later events dropped: more than 1536")
	require.Len(t, note, 1)
	require.Equal(t, float64(keep*1000), note[0].Ts)
	require.Equal(t, Breakdown{Window: all * ms, Compute: all * ms, NumDropped: all - keep}, r.Breakdown()[0])
}

func TestSeveralRecordersInOneFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := New(2)
		busy(first.Rank(1), Compute, "a", ms)
		time.Sleep(9 * ms)
		second := New(1)
		busy(second.Rank(0), Compute, "b", ms)
		var out bytes.Buffer
		require.NoError(t, WriteJSON(&out, Part{"dp8", second}, Part{"tp8", first}, Part{"none", nil}))
		f := read(t, out.Bytes())
		require.Equal(t, map[int]any{1: "dp8 rank 0", 2: "tp8 rank 0", 3: "tp8 rank 1"},
			f.names("process_name", func(e line) int { return e.Pid }))
		require.Equal(t, 0.0, f.spans("a")[0].Ts)
		require.Equal(t, 3, f.spans("a")[0].Pid)
		require.Equal(t, 10000.0, f.spans("b")[0].Ts)
		require.Equal(t, 1, f.spans("b")[0].Pid)
	})
}

func TestTotalsWriteNoSpans(t *testing.T) {
	r := New(1, Totals)
	r.Rank(0).Record(Compute, "x", 0, ms)
	f := parse(t, r)
	require.Empty(t, f.spans("x"))
	require.Equal(t, "0", f.OtherData["dropped_events"])
	require.Zero(t, r.Breakdown()[0].NumDropped)
}

type fullDisk struct{ left int }

var errFull = errors.New("disk full")

func (w *fullDisk) Write(b []byte) (int, error) {
	if len(b) > w.left {
		return 0, errFull
	}
	w.left -= len(b)
	return len(b), nil
}

func TestAWriteErrorIsReturned(t *testing.T) {
	r := New(1)
	for range 5000 {
		r.Rank(0).Record(Compute, "x", 0, ms)
	}
	require.ErrorIs(t, r.WriteJSON(&fullDisk{left: 100000}), errFull)
	require.ErrorIs(t, r.WriteJSON(&fullDisk{}), errFull)
}

func TestStepName(t *testing.T) {
	require.Equal(t, "execute_context_87(111606)_generation_112(112)", StepName(87, 111606, 112, 112))
	require.Equal(t, "execute_context_0(0)_generation_1(1)", StepName(0, 0, 1, 1))
}

// A program that does not trace holds nil and calls the same methods.
func TestNilRecordsNothing(t *testing.T) {
	var r *Recorder
	use := func() {
		l := r.Rank(5)
		s := l.BeginStep(1, 2, 3, 4)
		l.Begin(Compute, "x").End()
		l.BeginDummyStep().End()
		l.Record(Compute, "x", l.Now(), ms)
		l.Collective("x", 0, ms, 0, 1)
		l.Mark("m")
		s.End()
		r.Stream(1, 2).Mark("m")
		var o comm.Op
		r.Begin(0, &o)
		r.End(0, &o, nil)
		r.Reset()
	}
	use()
	require.Zero(t, testing.AllocsPerRun(100, use))
	require.Nil(t, r.Rank(0))
	require.Nil(t, r.Rank(0).Tracer())
	require.Nil(t, r.Breakdown())
	require.Nil(t, r.ByName())
	require.Empty(t, parse(t, r).TraceEvents)
	Span{}.End()
}

func TestSpansAllocateNothing(t *testing.T) {
	for name, option := range map[string]Option{"totals": Totals, "spans": MaxEvents(chunkEvents)} {
		t.Run(name, func(t *testing.T) {
			l := New(1, option).Rank(0)
			tracer := l.Tracer()
			var o comm.Op
			require.Zero(t, testing.AllocsPerRun(500, func() {
				s := l.BeginStep(1, 2, 3, 4)
				tracer.Begin(0, &o)
				tracer.End(0, &o, nil)
				l.Begin(Compute, "x").End()
				s.End()
			}))
		})
	}
}

func BenchmarkSpan(b *testing.B) {
	for name, l := range map[string]*Lane{
		"nil": nil, "totals": New(1, Totals).Rank(0), "spans": New(1, MaxEvents(1<<20)).Rank(0),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.Begin(Compute, "x").End()
			}
		})
	}
}

func BenchmarkWriteJSON(b *testing.B) {
	r := New(1)
	for i := range 100000 {
		r.Rank(0).Record(Compute, "attention", time.Duration(i), 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, r.WriteJSON(new(strings.Builder)))
	}
}
