package p2p

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/envknob"
	"github.com/weftgo/weft/internal/kernels"
	"github.com/weftgo/weft/internal/nvrtc"
)

// tuneKnob says what Open does about the table of choices.
var tuneKnob = envknob.Register("WEFT_TUNE", "how collectives on GPUs choose their form and blocks by size: load (a stored table, the default), run (measure when none is stored), off", "load", "run", "off")

// choice is how one operation of up to MaxBytes is launched.
type choice struct {
	MaxBytes int64   `json:"max_bytes"`
	Push     bool    `json:"push,omitempty"` // an all-reduce in one trip, where the vector allows it
	Blocks   int     `json:"blocks"`         // at most
	TimeUs   float64 `json:"time_us,omitempty"`
}

// tuning is the choices of a world: measured on its machine, or the default. Results do not depend on it: every form adds up in
// rank order.
type tuning struct {
	GPU     string                   `json:"gpu"`
	Driver  string                   `json:"driver"`
	Ranks   string                   `json:"ranks"`   // of each GPU, such as "8" or "1,1,1,1"
	Library string                   `json:"library"` // a sum of the kernels' source
	Choices map[comm.OpKind][]choice `json:"-"`
	Stored  map[string][]choice      `json:"choices"`
}

// tunedKinds are the operations that a table has rows for; the others use the rows of the one that moves as they do.
var tunedKinds = []comm.OpKind{comm.AllReduce, comm.AllGather, comm.ReduceScatter, comm.AllToAllV}

// tunedAs returns whose rows an operation uses.
func tunedAs(k comm.OpKind) comm.OpKind {
	switch k {
	case comm.AllGatherV, comm.Broadcast:
		return comm.AllGather
	case comm.ReduceScatterV, comm.Reduce:
		return comm.ReduceScatter
	}
	return k
}

// choose returns how an operation of bytes is launched; the zero choice leaves it to the rules of the driver. Operations larger
// than all rows have no choice: they use all blocks.
func (t *tuning) choose(k comm.OpKind, bytes int64) choice {
	if t == nil {
		return choice{}
	}
	for _, c := range t.Choices[tunedAs(k)] {
		if bytes <= c.MaxBytes {
			return c
		}
	}
	return choice{}
}

// newTable returns a table without rows for w.
func (w *world) newTable() (*tuning, error) {
	t := &tuning{Choices: map[comm.OpKind][]choice{}}
	version, err := cuda.Version()
	if err != nil {
		return nil, err
	}
	t.Driver = fmt.Sprint(version)
	if b, err := os.ReadFile("/sys/module/nvidia/version"); err == nil {
		t.Driver = strings.TrimSpace(string(b))
	}
	numRanks := map[int]int{}
	for _, d := range w.cfg.Devices {
		numRanks[d.Index]++
	}
	var counts []string
	for index, n := range numRanks {
		counts = append(counts, fmt.Sprint(n))
		info := w.gpus[index].dev.Info()
		t.GPU = max(t.GPU, info.Name)
		sum := sha256.Sum256([]byte(kernels.Program(info.Arch()).Source))
		t.Library = hex.EncodeToString(sum[:6])
	}
	slices.Sort(counts)
	t.Ranks = strings.Join(counts, ",")
	return t, nil
}

// path returns where the table is stored; empty without a cache folder.
func (t *tuning) path() string {
	dir := nvrtc.DefaultDir()
	if dir == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{t.GPU, t.Driver, t.Ranks, t.Library}, "\x00")))
	return filepath.Join(filepath.Dir(dir), "p2p", "tune-"+hex.EncodeToString(sum[:8])+".json")
}

// load fills t with the stored rows and says whether there are any. A file that is not t's is as good as none.
func (t *tuning) load() bool {
	b, err := os.ReadFile(t.path())
	if err != nil {
		return false
	}
	var got tuning
	if json.Unmarshal(b, &got) != nil || got.GPU != t.GPU || got.Driver != t.Driver || got.Ranks != t.Ranks || got.Library != t.Library {
		return false
	}
	for _, k := range tunedKinds {
		rows := got.Stored[k.String()]
		for i, c := range rows {
			if c.Blocks < 1 || i > 0 && c.MaxBytes <= rows[i-1].MaxBytes {
				return false
			}
		}
		t.Choices[k] = rows
	}
	return true
}

// store writes the rows, in one step: readers see the old file or the new one.
func (t *tuning) store() error {
	path := t.path()
	if path == "" {
		return nil
	}
	t.Stored = map[string][]choice{}
	for k, rows := range t.Choices {
		t.Stored[k.String()] = rows
	}
	b, err := json.MarshalIndent(t, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tune-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
