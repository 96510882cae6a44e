package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/plan"
)

func weft(t *testing.T, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(args, &out, &errs)
	return status, out.String(), errs.String()
}

// squeeze makes runs of spaces one, so that a test names cells and not columns.
func squeeze(s string) string { return regexp.MustCompile(` +`).ReplaceAllString(s, " ") }

// TestArticleTables: the command of the documentation prints the article's tables.
func TestArticleTables(t *testing.T) {
	status, out, errs := weft(t, "plan", "--model", "qwen3-235b-a22b", "--gpus", "8", "--tokens", "32768")
	require.Equal(t, 0, status, errs)
	text := squeeze(out)
	for _, want := range []string{
		"235.094e9 parameters, 22.19e9 active (21.57e9 without the input embedding), 437.9 GiB of weights",
		"18874368 parameters an expert, 227.096e9 routed, 7.997e9 the rest",
		"S = 32768 tokens x hidden x 2 bytes = 256 MiB; KV cache 188 KiB a token, 47 KiB on a tp8 rank",
		"tp8 no all-reduce\n", "tp8+ep8 no all-reduce\n",
		"dp8+ep8:agrs yes all-gather (dispatch) + reduce-scatter (combine)",
		"dp8+ep8:alltoall yes all-to-all: point-to-point dispatch + combine",
		"tp8 ring 28.00 82.25 658.0", "tp8+ep8 ring 28.00 82.25 658.0", "tp8 in-switch 18.00 52.88 423.0",
		"dp8+ep8:agrs ring 14.00 41.12 329.0", "dp8+ep8:alltoall self 10.50 30.85 246.8", "dp8+ep8:alltoall wire 9.19 26.99 216.0",
		"dp8+ep8:alltoall distinct-wire 9.34 27.45 219.6", "pp2 256 MiB pp4 768 MiB pp8 1792 MiB",
		"pp2 11.1 % pp4 27.3 % pp8 46.7 %",
		"8 5.251 5.339 4.672", "tp8 54.74 54.91", "dp2tp4+ep8:agrs 56.60", "dp4tp2+ep8:agrs 60.32", "dp8+ep8:agrs 67.77", "dp8:replicas 437.90",
		"refused: dp8:replicas", "F1 ep halves the weights", "2x: 4 KV heads are held twice", "Try first: tp8+ep8 (fits-one-node",
	} {
		require.Contains(t, text, want)
	}
}

func TestJSON(t *testing.T) {
	status, out, errs := weft(t, "plan", "--json")
	require.Equal(t, 0, status, errs)
	var r plan.Report
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.EqualValues(t, int64(235093634560), r.Params.Total)
	require.Len(t, r.Rows, 9)
	require.Equal(t, "tp8+ep8", r.Verdict.Layout)
	require.NotEmpty(t, r.Rows[0].Steps)
	status, out, errs = weft(t, "plan", "--sweep", "tokens", "--json")
	require.Equal(t, 0, status, errs)
	var s plan.Sweep
	require.NoError(t, json.Unmarshal([]byte(out), &s))
	require.Len(t, s.Curves, 4)
	require.NotEmpty(t, s.Crossovers)
}

func TestSweepsDraw(t *testing.T) {
	for _, over := range []string{"ranks", "tokens", "concurrency"} {
		file := filepath.Join(t.TempDir(), "sweep.svg")
		status, out, errs := weft(t, "plan", "--sweep", over, "--svg", file)
		require.Equal(t, 0, status, errs)
		require.Contains(t, out, "crossover at")
		require.Contains(t, out, "+------")
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		d, lines := xml.NewDecoder(bytes.NewReader(data)), 0
		for {
			tok, err := d.Token()
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "polyline" {
				lines++
			}
		}
		require.Equal(t, strings.Count(out[:strings.Index(out, "\n\n")], ": ")-map[string]int{"concurrency": 1}[over], lines)
	}
}

// TestConfigFile: a config.json gives what the preset gives.
func TestConfigFile(t *testing.T) {
	_, preset, _ := weft(t, "plan", "--model", "mixtral-8x7b", "--gpus", "4", "--json")
	status, file, errs := weft(t, "plan", "--model", "../../plan/testdata/configs/mixtral-8x7b.json", "--gpus", "4", "--json")
	require.Equal(t, 0, status, errs)
	_, rest, _ := strings.Cut(preset, "\n")
	_, rest, _ = strings.Cut(rest, "\n") // the name
	require.Contains(t, strings.ReplaceAll(file, "MixtralForCausalLM", "mixtral-8x7b"), rest)
}

// TestModelFolder: a folder is read by its config.json, and a small model's counts are in millions.
func TestModelFolder(t *testing.T) {
	const folder = "../../examples/internal/bundled/judge-moe"
	status, out, errs := weft(t, "plan", "--model", folder)
	require.Equal(t, 0, status, errs)
	require.Contains(t, out, "7.301e6 parameters, 2.14e6 active (1.75e6 without the input embedding), 13.9 MiB")
	_, file, _ := weft(t, "plan", "--model", folder+"/config.json")
	require.Equal(t, file, out)
	_, out, _ = weft(t, "plan", "--model", folder, "--json")
	require.Contains(t, out, `"per_expert"`)
	require.NotContains(t, out, `"PerExpert"`)
	_, _, errs = weft(t, "plan", "--model", t.TempDir())
	require.Contains(t, errs, "config.json: no such file")
}

func TestErrors(t *testing.T) {
	dense := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(dense, []byte(`{"model_type":"llama","num_hidden_layers":32}`), 0o600))
	for _, c := range []struct {
		args string
		want string
	}{
		{"plan --model gpt-2", `no model preset "gpt-2"; have deepseek-r1`},
		{"plan --model " + dense, "it is dense"},
		{"plan --model missing.json", "no such file"},
		{"plan --gpus 0", "--gpus 0: want at least 1"},
		{"plan --gpus 12", "whole nodes of 8"},
		{"plan --cluster a100", `no cluster preset "a100"`},
		{"plan --cluster 0xh200", "zero GPUs"},
		{"plan --workload poetry", "have chat, decode-heavy, judge"},
		{"plan --tokens 0", "0 tokens in a forward"},
		{"plan --tp 3", "tp 3 does not divide the 64 attention heads"},
		{"plan --tp 4", "takes 4 GPUs, the cluster has 8"},
		{"plan --dp 3 --ep", "do not divide the 8 GPUs"},
		{"plan --tp=-1", "none may be negative"},
		{"plan --layout tp8+ep4", "8 ranks"},
		{"plan --format fp3", `no weight format "fp3"`},
		{"plan --format fp8 --layout tp8", "slice of 192"},
		{"plan --prompt=-5", "--prompt -5"},
		{"plan --sweep colour", "have ranks, tokens, concurrency"},
		{"plan --svg x.svg", "add --sweep"},
		{"plan --zipf=-1", "none may be negative"},
		{"plan --backend deepep", "--backend must be one of"},
		{"plan --wrong", "unknown flag --wrong"},
		{"fly", "unexpected argument fly"},
	} {
		status, out, errs := weft(t, strings.Fields(c.args)...)
		require.NotZero(t, status, c.args)
		require.Contains(t, errs, c.want, c.args)
		require.Empty(t, out, c.args)
	}
	status, out, _ := weft(t, "plan", "--help")
	require.Equal(t, 0, status)
	require.Contains(t, out, "--sweep")
	status, out, _ = weft(t, "plan", "--list")
	require.Equal(t, 0, status)
	require.Contains(t, out, "gpt-oss-120b")
}

// TestHelp: weft alone says what it can do, in every spelling.
func TestHelp(t *testing.T) {
	_, want, _ := weft(t, "--help")
	require.Contains(t, want, "doctor")
	for _, args := range [][]string{{}, {"help"}} {
		status, out, errs := weft(t, args...)
		require.Equal(t, 0, status)
		require.Equal(t, want, out)
		require.Empty(t, errs)
	}
	status, out, _ := weft(t, "help", "launch")
	require.Equal(t, 0, status)
	require.Contains(t, out, "--nnodes")
}

// TestOneLayout: --tp, --dp and --ep name one layout; what is left out fills the GPUs.
func TestOneLayout(t *testing.T) {
	for args, want := range map[string]string{"--dp 2 --ep": "dp2tp4+ep8:agrs", "--tp 8": "tp8", "--ep": "tp8+ep8",
		"--dp 8 --ep --backend alltoall": "dp8+ep8:alltoall", "--pp 2": "tp4pp2"} {
		status, out, errs := weft(t, append([]string{"plan", "--json"}, strings.Fields(args)...)...)
		require.Equal(t, 0, status, errs)
		var r plan.Report
		require.NoError(t, json.Unmarshal([]byte(out), &r))
		require.Len(t, r.Rows, 1)
		require.Equal(t, want, r.Rows[0].Layout, args)
	}
}
