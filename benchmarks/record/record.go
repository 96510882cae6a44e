package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Header says what was run, on what.
type Header struct {
	Record  string            `json:"record"` // "header"
	Tool    string            `json:"tool"`   // "benchmarks" or "peers"
	Weft    string            `json:"weft"`   // version
	Args    []string          `json:"args"`
	Machine Machine           `json:"machine"`
	Seed    uint64            `json:"seed"`
	Time    time.Time         `json:"time"`
	Peers   map[string]string `json:"peers,omitempty"` // library -> version
	Note    string            `json:"note,omitempty"`  // such as "neighbours were busy"
	GPU     string            `json:"gpu,omitempty"`   // of files that the GPU tests wrote, which have no Machine
}

// UnmarshalJSON reads a header. The first files of the GPU tests have a date where others have a time.
func (h *Header) UnmarshalJSON(b []byte) error {
	type plain Header
	var x struct {
		plain
		Time string `json:"time"`
	}
	if err := json.Unmarshal(b, &x); err != nil {
		return err
	}
	*h = Header(x.plain)
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		var err error
		if h.Time, err = time.Parse(layout, x.Time); err == nil {
			return nil
		}
	}
	if x.Time != "" {
		return fmt.Errorf("time %q is neither like %s nor like %s", x.Time, time.RFC3339, time.DateOnly)
	}
	return nil
}

// Row is one measurement. Fields that do not apply are left out.
type Row struct {
	Record  string   `json:"record"` // "row"
	Op      string   `json:"op"`
	Size    int64    `json:"size"`  // bytes: the larger of the largest send and receive buffers
	Count   int      `json:"count"` // elements
	Type    string   `json:"type"`
	Redop   string   `json:"redop,omitempty"`
	Root    *int     `json:"root,omitempty"`
	Driver  string   `json:"driver"` // "local", or of a peer "openmpi", "mpich"
	Ranks   int      `json:"ranks"`
	InPlace bool     `json:"in_place"`
	TimeUs  float64  `json:"time_us"`
	AlgBW   float64  `json:"algbw"` // GB/s = 1e9 bytes a second
	BusBW   float64  `json:"busbw"` // GB/s
	Wrong   *int64   `json:"wrong"` // elements; null when nothing was checked
	Iters   int      `json:"iters,omitempty"`
	Cycle   int      `json:"cycle,omitempty"` // of --run_cycles, or the round of peers; from 0
	Skew    float64  `json:"skew,omitempty"`
	Zeros   bool     `json:"zeros,omitempty"`
	PerIter *PerIter `json:"per_iter,omitempty"`
	MoE     *MoE     `json:"moe,omitempty"`
	CopyGBs float64  `json:"copy_gbs,omitempty"` // of the op "copy": bytes read and written
	How     string   `json:"how,omitempty"`      // of the GPU tests: in a graph, on a stream, inside a kernel
	Tokens  int      `json:"tokens,omitempty"`   // of the GPU tests of exchanges, which have no MoE
}

// PerIter is the spread of single iterations in microseconds, each that of the slowest rank.
type PerIter struct {
	Min float64 `json:"min"`
	Max float64 `json:"max"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	CV  float64 `json:"cv_percent"`
}

// MoE is what rows of dispatch, combine and moe_layer add.
type MoE struct {
	Backend        string  `json:"backend"`
	Tokens         int     `json:"tokens"` // of each rank
	Hidden         int     `json:"hidden"`
	Experts        int     `json:"experts"`
	TopK           int     `json:"topk"`
	Intermediate   int     `json:"intermediate,omitempty"`
	Zipf           float64 `json:"zipf,omitempty"`
	Wire           string  `json:"wire"` // type of dispatched rows
	LowLatency     bool    `json:"low_latency,omitempty"`
	P50Us          float64 `json:"p50_us"`
	P99Us          float64 `json:"p99_us"`
	LogicalGBs     float64 `json:"logical_gbs"`
	WireGBs        float64 `json:"wire_gbs"`
	CopiesPerToken float64 `json:"copies_per_token"`
	MaxOverMean    float64 `json:"max_over_mean"`
}

// Run is one file.
type Run struct {
	Name   string // of the file, for titles
	Header Header
	Rows   []Row
	Others map[string]int // lines of kinds that this version does not know, by kind
}

// Writer writes one file. A nil Writer drops everything.
type Writer struct {
	enc   *json.Encoder
	close func() error
}

// kept is the folder of recorded results.
const kept = "/benchmarks/results/"

// Create makes the file and writes its header. An empty path gives a nil Writer. In the folder of recorded results it refuses the
// header of a Dirty version.
func Create(path string, h Header) (*Writer, error) {
	if path == "" {
		return nil, nil
	}
	if dir, err := filepath.Abs(filepath.Dir(path)); err == nil && Dirty(h.Weft) && strings.Contains(filepath.ToSlash(dir)+"/", kept) {
		return nil, fmt.Errorf("results: %s is of a working folder with changes that no commit has, and %s keeps what can be built again: commit first, or write elsewhere", h.Weft, kept)
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	w := NewWriter(f)
	w.close = f.Close
	if err := w.header(h); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return w, nil
}

// NewWriter writes rows to out.
func NewWriter(out io.Writer) *Writer { return &Writer{enc: json.NewEncoder(out)} }

func (w *Writer) header(h Header) error {
	h.Record = "header"
	return w.enc.Encode(h)
}

// Write adds a row.
func (w *Writer) Write(r Row) error {
	if w == nil {
		return nil
	}
	r.Record = "row"
	if err := w.enc.Encode(r); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

// Close closes the file that Create made.
func (w *Writer) Close() error {
	if w == nil || w.close == nil {
		return nil
	}
	return w.close()
}

// Read reads what a Writer wrote.
func Read(in io.Reader) (Run, error) {
	var run Run
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var kind struct {
			Record string `json:"record"`
		}
		line := lines.Bytes()
		if err := json.Unmarshal(line, &kind); err != nil {
			if n == 1 {
				return run, fmt.Errorf("not a results file of -J: line 1: %w", err)
			}
			return run, fmt.Errorf("line %d: %w", n, err)
		}
		switch {
		case n == 1 && kind.Record != "header":
			return run, errors.New("not a results file of -J: line 1 is no header")
		case kind.Record == "header":
			if n > 1 {
				return run, fmt.Errorf("line %d is a second header; give files one by one", n)
			}
			if err := json.Unmarshal(line, &run.Header); err != nil {
				return run, fmt.Errorf("line %d: %w", n, err)
			}
		case kind.Record == "row":
			var r Row
			if err := json.Unmarshal(line, &r); err != nil {
				return run, fmt.Errorf("line %d: %w", n, err)
			}
			run.Rows = append(run.Rows, r)
		case kind.Record == "":
			return run, fmt.Errorf("line %d is neither header nor row: it has no \"record\"", n)
		default:
			if run.Others == nil {
				run.Others = map[string]int{}
			}
			run.Others[kind.Record]++
		}
	}
	if err := lines.Err(); err != nil {
		return run, err
	}
	if run.Header.Record == "" {
		return run, errors.New("the file is empty")
	}
	return run, nil
}

// ReadFile reads a file.
func ReadFile(path string) (Run, error) {
	f, err := os.Open(path)
	if err != nil {
		return Run{}, err
	}
	defer f.Close()
	run, err := Read(f)
	run.Name = path
	if err != nil {
		return run, fmt.Errorf("%s: %w", path, err)
	}
	return run, nil
}
