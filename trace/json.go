package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
)

// WriteJSON writes the spans in Chrome's trace event format, which Perfetto and
// chrome://tracing open: a process for each rank, in it a thread for each stream.
// A span still open is written as begun. Ranks may go on recording meanwhile. A
// nil Recorder writes an empty trace.
func (r *Recorder) WriteJSON(w io.Writer) error { return WriteJSON(w, Part{Recorder: r}) }

// Part is one recorder of a file of several, such as one run of a comparison.
type Part struct {
	Name     string // before "rank 3" in the file; may be empty
	Recorder *Recorder
}

// WriteJSON writes several recorders to one file, each with processes of its own,
// placed in time by when their clocks started.
func WriteJSON(w io.Writer, parts ...Part) error {
	j := &jsonWriter{w: bufio.NewWriterSize(w, 1<<16)}
	j.w.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
	zero := earliest(parts)
	pid := 1 // Perfetto keeps 0, as a process and as a thread, for the idle task
	for _, part := range parts {
		lanes, start := part.Recorder.all()
		for _, l := range lanes {
			j.lane(part.Name, pid+l.rank, l, start.Sub(zero))
		}
		if part.Recorder != nil {
			pid += len(part.Recorder.own)
		}
	}
	fmt.Fprintf(j.w, "\n],\"otherData\":{\"dropped_events\":\"%d\"}}\n", j.dropped)
	if err := j.w.Flush(); err != nil { // the first error of any write above
		return fmt.Errorf("trace: write events: %w", err)
	}
	return nil
}

// earliest returns the first start of a clock.
func earliest(parts []Part) (zero time.Time) {
	for _, part := range parts {
		if _, start := part.Recorder.all(); !start.IsZero() && (zero.IsZero() || start.Before(zero)) {
			zero = start
		}
	}
	return zero
}

type jsonWriter struct {
	w       *bufio.Writer
	line    []byte
	some    bool // an event was written
	tid     int  // of the lane; different for all lanes of the file
	dropped int64
}

// lane writes a lane's names and events. The lane is locked for one chunk at a
// time, not while w is slow.
func (j *jsonWriter) lane(part string, pid int, l *Lane, shift time.Duration) {
	j.tid++
	process, thread := "rank "+strconv.Itoa(l.rank), "host"
	if part != "" {
		process = part + " " + process
	}
	if l.stream != 0 {
		thread = "stream " + strconv.Itoa(l.stream)
	}
	if l.stream == 0 {
		j.meta(pid, "process_name", "name", process)
		j.meta(pid, "process_sort_index", "sort_index", pid)
	}
	j.meta(pid, "thread_name", "name", thread)
	j.meta(pid, "thread_sort_index", "sort_index", l.stream)

	copied := make([]event, 0, chunkEvents)
	var last time.Duration
	for at := 0; ; at += len(copied) {
		l.mu.Lock()
		copied = copied[:min(chunkEvents, max(l.events.n-at, 0))]
		for i := range copied {
			copied[i] = *l.events.at(at + i)
		}
		dropped, limit := l.events.dropped, l.events.max
		l.mu.Unlock()
		if len(copied) == 0 {
			if dropped > 0 {
				name := fmt.Sprintf("%d later events dropped: more than %d", dropped, limit)
				j.event(pid, &event{shape: mark, name: name, start: last}, shift)
				j.dropped += dropped
			}
			return
		}
		for i := range copied {
			j.event(pid, &copied[i], shift)
			last = max(last, copied[i].start+max(copied[i].dur, 0))
		}
	}
}

func (j *jsonWriter) meta(pid int, name, key string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic("trace: " + err.Error()) // a string or an int
	}
	j.begin()
	fmt.Fprintf(j.w, `{"ph":"M","pid":%d,"tid":%d,"name":"%s","args":{"%s":%s}}`, pid, j.tid, name, key, text)
}

func (j *jsonWriter) begin() {
	if j.some {
		j.w.WriteByte(',')
	}
	j.w.WriteByte('\n')
	j.some = true
}

func (j *jsonWriter) event(pid int, e *event, shift time.Duration) {
	b := append(j.line[:0], `{"ph":"`...)
	switch {
	case e.shape == mark:
		b = append(b, `i","s":"t`...)
	case e.dur == stillOpen:
		b = append(b, 'B')
	default:
		b = append(b, 'X')
	}
	b = strconv.AppendInt(append(b, `","pid":`...), int64(pid), 10)
	b = strconv.AppendInt(append(b, `,"tid":`...), int64(j.tid), 10)
	b = appendMicros(append(b, `,"ts":`...), e.start+shift)
	if e.shape != mark && e.dur != stillOpen {
		b = appendMicros(append(b, `,"dur":`...), e.dur)
	}
	if e.shape != mark {
		b = append(append(append(b, `,"cat":"`...), e.kind.String()...), '"')
	}
	b = append(b, `,"name":`...)
	if e.shape == stepArgs {
		b = append(appendStepName(append(b, '"'), e.args), '"')
	} else {
		b = appendString(b, e.name)
	}
	b = append(appendArgs(b, e), '}')
	j.line = b
	j.begin()
	j.w.Write(b)
}

func appendArgs(b []byte, e *event) []byte {
	switch e.shape {
	case stepArgs:
		b = strconv.AppendInt(append(b, `,"args":{"context_requests":`...), e.args[0], 10)
		b = strconv.AppendInt(append(b, `,"context_tokens":`...), e.args[1], 10)
		b = strconv.AppendInt(append(b, `,"generation_requests":`...), e.args[2], 10)
		b = strconv.AppendInt(append(b, `,"generation_tokens":`...), e.args[3], 10)
		b = append(b, '}')
	case collectiveArgs:
		b = strconv.AppendInt(append(b, `,"args":{"seq":`...), e.args[0], 10)
		b = strconv.AppendInt(append(b, `,"launches":`...), e.args[1], 10)
		b = strconv.AppendInt(append(b, `,"sent_bytes":`...), e.args[2], 10)
		b = appendMicros(append(b, `,"wait_us":`...), time.Duration(e.args[3]))
		if e.note != "" {
			b = appendString(append(b, `,"error":`...), e.note)
		}
		b = append(b, '}')
	}
	return b
}

// appendMicros writes microseconds with three decimals: all of the clock's digits.
func appendMicros(b []byte, d time.Duration) []byte {
	if d < 0 {
		b, d = append(b, '-'), -d
	}
	b = strconv.AppendInt(b, int64(d/time.Microsecond), 10)
	ns := int64(d % time.Microsecond)
	return append(b, '.', byte('0'+ns/100), byte('0'+ns/10%10), byte('0'+ns%10))
}

// appendString writes s as a JSON string. Names are almost always plain ASCII,
// which needs no encoder.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, err := json.Marshal(s)
			if err != nil {
				panic("trace: " + err.Error()) // a string always encodes
			}
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
