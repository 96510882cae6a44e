package record

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.jsonl")
	h := Header{Tool: "benchmarks", Weft: "v9", Args: []string{"-b", "8"}, Machine: ThisMachine(), Seed: 3,
		Time: time.Date(2026, 12, 1, 2, 3, 4, 0, time.UTC), Peers: map[string]string{"mpich": "4.0.2"}}
	w, err := Create(path, h)
	require.NoError(t, err)
	wrong, root := int64(0), 1
	rows := []Row{
		{Op: "all_reduce", Size: 8, Count: 2, Type: "f32", Redop: "sum", Driver: "local", Ranks: 2, TimeUs: 1.5, AlgBW: 2, BusBW: 3,
			Wrong: &wrong, Iters: 20, PerIter: &PerIter{Min: 1, Max: 2, P50: 1.5, P99: 2, CV: 9}},
		{Op: "broadcast", Root: &root, InPlace: true, Cycle: 2, Skew: 0.5, Zeros: true},
		{Op: "dispatch", MoE: &MoE{Backend: "agrs", Tokens: 4, Hidden: 8, Experts: 16, TopK: 2, Wire: "bf16", P50Us: 1, P99Us: 2,
			LogicalGBs: 3, WireGBs: 4, CopiesPerToken: 5, MaxOverMean: 6}},
	}
	for _, r := range rows {
		require.NoError(t, w.Write(r))
	}
	require.NoError(t, w.Close())

	run, err := ReadFile(path)
	require.NoError(t, err)
	h.Record = "header"
	for i := range rows {
		rows[i].Record = "row"
	}
	require.Equal(t, h, run.Header)
	require.Equal(t, rows, run.Rows)
	require.Equal(t, path, run.Name)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 4, bytes.Count(text, []byte("\n")))
	require.Contains(t, string(text), `"wrong":null`)
}

func TestNoFile(t *testing.T) {
	w, err := Create("", Header{})
	require.NoError(t, err)
	require.NoError(t, w.Write(Row{}))
	require.NoError(t, w.Close())
	_, err = Create(filepath.Join(t.TempDir(), "no", "such"), Header{})
	require.ErrorContains(t, err, "results:")
	_, err = ReadFile(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// What is recorded for good comes from a commit.
func TestCreateRefusesDirty(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "benchmarks", "results", "p2p")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for version, where := range map[string]string{"devel-1234567": dir, "v0.1.0": dir, "devel-1234567-dirty": t.TempDir()} {
		w, err := Create(filepath.Join(where, "x.jsonl"), Header{Weft: version})
		require.NoError(t, err, version)
		require.NoError(t, w.Close())
	}
	for _, version := range []string{"devel-1234567-dirty", "v0.1.1-0.20261201+dirty"} {
		_, err := Create(filepath.Join(dir, "y.jsonl"), Header{Weft: version})
		require.ErrorContains(t, err, "commit first", version)
	}
	require.NoFileExists(t, filepath.Join(dir, "y.jsonl"))
}

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "empty",
		`{"record":"row"}`:            "not a results file of -J: line 1 is no header",
		"# weft":                      "not a results file of -J: line 1: invalid character '#'",
		"{\"record\":\"header\"}\n{}": "line 2 is neither header nor row",
		strings.Repeat("{\"record\":\"header\"}\n", 2):                 "second header",
		"{\"record\":\"header\"}\n{\"record\":\"row\",\"size\":\"x\"}": "line 2",
	} {
		_, err := Read(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
}

// Files of the GPU tests have dates, GPUs and further kinds of lines.
func TestReadOthers(t *testing.T) {
	run, err := Read(strings.NewReader(`{"record":"header","gpu":"H200","time":"2026-12-01"}
{"record":"row","op":"all_reduce","how":"graph","size":1024,"time_us":4.5}
{"record":"tune","op":"all_reduce"}
{"record":"tune","op":"barrier"}`))
	require.NoError(t, err)
	require.Equal(t, "H200", run.Header.GPU)
	require.Equal(t, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), run.Header.Time)
	require.Equal(t, "graph", run.Rows[0].How)
	require.Equal(t, map[string]int{"tune": 2}, run.Others)
	_, err = Read(strings.NewReader(`{"record":"header","time":"yesterday"}`))
	require.ErrorContains(t, err, `time "yesterday" is neither`)
}

func TestMachine(t *testing.T) {
	m := ThisMachine()
	require.Positive(t, m.NumCPU)
	require.Contains(t, m.String(), m.Go)
	require.NotEmpty(t, Version())
	require.Empty(t, fields("/no/such/file"))
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"record\":\"header\",\"seed\":1}\n{\"record\":\"row\",\"op\":\"barrier\",\"wrong\":3}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		run, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		var out bytes.Buffer
		w := NewWriter(&out)
		require.NoError(t, w.header(run.Header))
		for _, r := range run.Rows {
			require.NoError(t, w.Write(r))
		}
		again, err := Read(&out)
		require.NoError(t, err)
		require.Len(t, again.Rows, len(run.Rows))
	})
}
