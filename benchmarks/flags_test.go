package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/benchmarks/exchange"
	"github.com/weftgo/weft/benchmarks/suite"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

func parse(t *testing.T, args ...string) (*flags, error) {
	var f flags
	parser, err := kong.New(&f, kong.Vars{"ops": ""}, kong.Writers(io.Discard, io.Discard))
	require.NoError(t, err)
	if _, err := parser.Parse(args); err != nil {
		return &f, err
	}
	return &f, f.check()
}

// Every flag of nccl-tests parses in both spellings, and to the same.
func TestBothSpellings(t *testing.T) {
	for _, c := range []struct{ short, long, value string }{
		{"t", "nthreads", "2"}, {"g", "ngpus", "4"}, {"b", "minbytes", "1K"}, {"e", "maxbytes", "1G"}, {"i", "stepbytes", "1M"},
		{"f", "stepfactor", "2"}, {"n", "iters", "7"}, {"w", "warmup_iters", "3"}, {"m", "agg_iters", "2"}, {"N", "run_cycles", "2"},
		{"p", "parallel_init", "0"}, {"c", "check", "3"}, {"o", "redop", "max"}, {"d", "datatype", "half"}, {"r", "root", "1"},
		{"z", "blocking", "1"}, {"y", "stream_null", "0"}, {"T", "timeout", "9"}, {"G", "cudagraph", "0"}, {"C", "report_cputime", "0"},
		{"a", "average", "3"}, {"R", "local_register", "0"}, {"x", "cta_policy", "0"}, {"D", "device_implementation", "0"},
		{"V", "device_cta_count", "16"}, {"J", "output_file", "x.jsonl"}, {"M", "memory", "1"}, {"u", "unalign", "1"},
		{"I", "per_iter_timing", "1"}, {"K", "per_iter_skip", "5"}, {"S", "report_timestamps", "1"},
	} {
		a, err := parse(t, "-"+c.short, c.value)
		require.NoError(t, err, c.short)
		b, err := parse(t, "--"+c.long+"="+c.value)
		require.NoError(t, err, c.long)
		require.Equal(t, a, b, c.long)
		none, err := parse(t)
		require.NoError(t, err)
		if !strings.Contains("p y G C R x D V", c.short) {
			require.NotEqual(t, none, a, c.short)
		}
	}
}

func TestOwnFlags(t *testing.T) {
	f, err := parse(t, "--op", "dispatch,all_reduce,combine", "--driver", "nccl", "--devices", "cpu", "--ranks", "3", "--skew", "0.5", "--zeros",
		"--budget", "1s", "--seed", "9", "--tokens", "1,2", "--hidden", "64", "--experts", "8", "--topk", "2", "--intermediate", "32", "--fp8",
		"--backend", "agrs,auto")
	require.NoError(t, err)
	require.Equal(t, suite.Load{Skew: 0.5, Zeros: true}, f.load())
	require.Equal(t, []int{1, 2}, f.Tokens)
	require.Equal(t, []string{"agrs", "auto"}, f.Backend)
	ops, moe, err := f.ops()
	require.NoError(t, err)
	require.Len(t, ops, 1)
	require.Equal(t, []string{"dispatch", "combine"}, moe)

	f, err = parse(t, "--zipf", "1.2", "-a", "2", "-I", "1", "-z", "1", "-m", "4", "-n", "6", "-w", "2")
	require.NoError(t, err)
	require.Equal(t, suite.Timing{Warmup: 2, Iters: 6, Agg: 4, Average: suite.Min, PerIter: true, Blocking: true, Budget: f.Budget}, f.timing())
	ops, moe, err = f.ops()
	require.NoError(t, err)
	require.Len(t, ops, len(suite.Operations))
	require.Equal(t, exchange.Names(), moe)
}

func TestRefused(t *testing.T) {
	for args, want := range map[string]string{
		"-p 1":                  "opens all ranks of a world at once",
		"-y 1":                  "legacy default stream",
		"-G 1":                  "no CUDA graphs",
		"-C 1":                  "time shown is the CPU's",
		"-R 2":                  "nothing to register",
		"-x 1":                  "NCCL_CTA_POLICY",
		"-D 1":                  "use --driver",
		"-V 4":                  "driver chooses",
		"-z 2":                  "use 0, or 1 for a barrier",
		"-a 4":                  "average 4 is not one of",
		"-b 2K -e 1K":           "-b 2048 is above -e 1024",
		"-f 1":                  "factor above 1",
		"-f 2 -i 4":             "give one of them",
		"--iters=-1":            "must not be negative",
		"--check=-1":            "must not be negative",
		"-I 2":                  "-I 2: use 0 or 1",
		"--ngpus=-1":            "must not be negative",
		"--skew 2":              "skew 2 is not in [0, 1]",
		"--topk 99":             "--topk 99 is not in [1, --experts 32]",
		"--tokens=-3":           "--tokens -3",
		"--hidden 0":            "--hidden 0",
		"--zipf 99":             "--zipf 99",
		"--zipf 1 --skew 0.5":   "give one of them",
		"--backend agrs,foo":    `--backend: unknown exchanger "foo"`,
		"-b 8Q":                 `size "8Q" is not a number of bytes`,
		"--nonsense":            "unknown flag",
		"--driver local extra1": "unexpected argument",
	} {
		_, err := parse(t, strings.Fields(args)...)
		require.ErrorContains(t, err, want, args)
	}
	for _, args := range []string{"--devices cuda:0 -G 3", "--devices cuda:0 -C 1"} {
		f, err := parse(t, strings.Fields(args)...)
		require.NoError(t, err, args)
		require.Zero(t, f.Ranks, "as many as there are devices")
	}
	for args, want := range map[string]string{
		"--devices cuda:0 -G 3 -I 1":      "neither its iterations nor",
		"--devices cuda:0 --cudagraph=-1": "must not be negative",
		"-d double":                       "weft has no such type",
		"-d no":                           "-d: ",
		"-o mulsum":                       "no sum with a factor",
		"-o no":                           "-o no: use sum",
		"-r 7 --ranks 2":                  "-r 7: use a rank in [0, 2) or all",
		"--op no":                         "--op no: there are all_reduce",
		"--op sum":                        "the reduction is -o or --redop",
		"--devices cuda:0-7 --ranks 2":    "they are for 8 ranks, not 2",
		"-e 900G":                         "needs",
		"--ranks 65 -e 8":                 "65 ranks",
	} {
		err := run(context.Background(), strings.Fields(args), io.Discard, io.Discard)
		require.ErrorContains(t, err, want, args)
	}
	err := run(context.Background(), []string{"--driver", "nccl", "-e", "8"}, io.Discard, io.Discard)
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorContains(t, err, `"nccl"`)
}

func TestRanks(t *testing.T) {
	for args, want := range map[string]int{"-g 8": 8, "-t 3": 3, "-t 2 -g 4": 8, "-g 8 --ranks 5": 5} {
		f, err := parse(t, strings.Fields(args)...)
		require.NoError(t, err)
		require.Equal(t, want, f.Ranks, args)
	}
	f, err := parse(t)
	require.NoError(t, err)
	require.GreaterOrEqual(t, f.Ranks, 2)
}

func TestAll(t *testing.T) {
	f, err := parse(t, "-d", "all", "-o", "all", "-r", "all", "--ranks", "3")
	require.NoError(t, err)
	types, err := f.types()
	require.NoError(t, err)
	require.Equal(t, dtype.All(), types)
	redops, err := f.redops()
	require.NoError(t, err)
	require.Len(t, redops, 5)
	roots, err := f.roots()
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2}, roots)
}

func TestSizes(t *testing.T) {
	for args, want := range map[string]string{
		"-b 8 -e 64 -f 2":   "[8 16 32 64]",
		"-b 8 -e 100":       "[8 32]",
		"-b 1K -e 3K -i 1K": "[1024 2048 3072]",
		"-b 5 -e 5 -i 0":    "[5]",
		"-b 1 -e 4 -f 1.5":  "[1 2 3 4]",
		"-b 0 -e 2":         "[0 1]",
		"-b 1.5K -e 2K":     "[1536]",
	} {
		f, err := parse(t, strings.Fields(args)...)
		require.NoError(t, err)
		require.Equal(t, want, fmt.Sprint(f.sizes()), args)
	}
	f, err := parse(t)
	require.NoError(t, err)
	sizes := f.sizes()
	require.EqualValues(t, []int64{8, 128 << 20}, []int64{sizes[0], sizes[len(sizes)-1]})
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(context.Background(), []string{"--help"}, &out, io.Discard))
	require.Contains(t, out.String(), "--warmup_iters")
	require.Contains(t, strings.Join(strings.Fields(out.String()), " "), "dispatch, combine, moe_layer")
}
