package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/examples/internal/deploy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// log is a log that may be written and read at once.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// begin runs the server with flags and returns its address, what a SIGTERM does, and how it ends.
func begin(t *testing.T, args ...string) (url string, term func(), ended <-chan error, errOut *log) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	in, out := io.Pipe()
	end := make(chan error, 1)
	errOut = &log{}
	go func() {
		err := run(ctx, append([]string{"--port", "0"}, args...), out, errOut)
		out.CloseWithError(io.EOF)
		end <- err
	}()
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		require.NoError(t, <-end)
	}
	_, url, ok := strings.Cut(strings.TrimSpace(line), " on ")
	require.True(t, ok, line)
	return url, cancel, end, errOut
}

func post(t *testing.T, url, body string) (int, string) {
	resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

func TestServe(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	url, term, ended, log := begin(t, "--data-parallel-size", "2", "--enable-expert-parallel", "--all2all-backend", "deepep_low_latency",
		"--max-model-len", "256", "--served-model-name", "a,b", "--max-num-batched-tokens", "128")
	status, text := post(t, url, `{"model":"b","prompt":"Hello","max_tokens":3,"frobnicate":1}`)
	require.Equal(t, 200, status, text)
	require.Contains(t, text, `"model":"b"`)
	require.Contains(t, log.String(), "frobnicate")
	status, _ = post(t, url, `{"model":"c","prompt":"Hello"}`)
	require.Equal(t, 404, status)
	term()
	require.NoError(t, <-ended)
}

// SIGTERM: what is under way may end; what does not within the timeout is aborted, and the client is told.
func TestTerm(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	for _, c := range []struct{ drain, maxTokens, want string }{
		{"20s", "200", `"finish_reason":"length"`},
		{"10ms", "8000", `"finish_reason":"abort"|"error":`},
	} {
		url, term, ended, _ := begin(t, "--drain-timeout", c.drain)
		resp, err := http.Post(url+"/v1/completions", "application/json",
			strings.NewReader(`{"prompt":"Hello","stream":true,"ignore_eos":true,"max_tokens":`+c.maxTokens+`}`))
		require.NoError(t, err)
		term()
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		require.NoError(t, err)
		require.Regexp(t, c.want, string(text[max(0, len(text)-600):]))
		require.True(t, strings.HasSuffix(string(text), "data: [DONE]\n\n"))
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(20 * time.Second):
			require.Fail(t, "the server does not end")
		}
	}
}

func TestBadFlags(t *testing.T) {
	for args, text := range map[string]string{
		"--device cuda": "cpu", "--dtype bfloat16": "float32", "--all2all-backend nvls": "agrs", "--all2all-backend pplx": "no use",
		"--tensor-parallel-size 0": "at least 1", "--tensor-parallel-size 9": "8 attention heads", "--data-parallel-size 65": "64",
		"--data-parallel-size 33 --enable-expert-parallel": "32 experts", "--max-model-len 9000": "8192", "--max-num-batched-tokens 0": "[1, ",
		"--kv-cache-tokens 100": "8192", "--block-size 20": "16", "--max-logprobs 21": "20", "--model /nowhere": "/nowhere", "--port 70000": "65535",
		"--model ../internal/checkpoint/testdata/odd-a": "--skip-tokenizer-init", "--frobnicate": "frobnicate", "--max-num-seqs -1": "max-num-seqs",
	} {
		err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard)
		require.ErrorContains(t, err, text, args)
	}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"--help"}, &out, io.Discard))
	for _, flag := range []string{"--tensor-parallel-size", "enable-prefix-caching", "--api-key"} {
		require.Contains(t, out.String(), flag)
	}
}

// A model without a tokenizer serves ids.
func TestIDsOnly(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	url, term, ended, _ := begin(t, "--model", "../internal/checkpoint/testdata/odd-a", "--skip-tokenizer-init")
	status, text := post(t, url, `{"prompt":[1,2,3],"max_tokens":2}`)
	require.Equal(t, 200, status, text)
	require.Contains(t, text, `"token_ids":[`)
	term()
	require.NoError(t, <-ended)
}

// What does not fit is refused with the number and the largest that fits, and that fits.
func TestMemory(t *testing.T) {
	folder, err := openModel("")
	require.NoError(t, err)
	defer folder.Close()
	try := func(f flags, available int64) (deploy.Config, error) {
		f.Backend, f.Policy = "auto", "round-robin"
		f.TP, f.MaxSeqs, f.BlockSize = 1, 64, 64
		l, err := f.layout(folder.Config)
		require.NoError(t, err)
		return f.deployment(l, folder.Config, available)
	}
	huge := flags{DP: 4, EP: true, MaxBatchedTokens: maxTokens}
	_, err = try(huge, 4<<30)
	require.ErrorContains(t, err, "--max-num-batched-tokens 67108864")
	_, most, ok := strings.Cut(err.Error(), "the largest that fits is ")
	require.True(t, ok, err)
	n := 0
	for _, r := range most {
		n = 10*n + int(r-'0')
	}
	huge.MaxBatchedTokens = n
	c, err := try(huge, 4<<30)
	require.NoError(t, err)
	require.LessOrEqual(t, demand(&c, folder.Config, n), int64(4<<30))
	huge.MaxBatchedTokens = n + 4 // at least one token more for each replica
	_, err = try(huge, 4<<30)
	require.ErrorContains(t, err, "largest that fits")

	_, err = try(flags{DP: 8, EP: true, MaxBatchedTokens: 64}, 300<<20)
	require.ErrorContains(t, err, "--data-parallel-size ")
	_, err = try(flags{DP: 1, MaxBatchedTokens: 64}, 1<<20)
	require.ErrorContains(t, err, "nothing fits")
	_, err = try(flags{DP: 1, MaxBatchedTokens: 64}, 0)
	require.NoError(t, err, "no limit is known")
}

// The refusal that docs/serving.md shows is what its command gives.
func TestDocumentedRefusal(t *testing.T) {
	doc, err := os.ReadFile("../../docs/serving.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(doc), "$ go run ./examples/serve ")
	require.True(t, ok)
	command, rest, _ := strings.Cut(rest, "\n")
	answer, _, _ := strings.Cut(rest, "\n")
	require.EqualError(t, run(t.Context(), strings.Fields(command), io.Discard, io.Discard), strings.TrimPrefix(answer, "serve: "))
}

// Every name that weft.NewExchanger takes is one of --all2all-backend and means the same there; auto is its rule.
func TestBackends(t *testing.T) {
	folder, err := openModel("")
	require.NoError(t, err)
	defer folder.Close()
	for name, want := range map[string]string{
		"agrs": "agrs", "allgather_reducescatter": "agrs", "naive": "agrs", "alltoall": "alltoall", "pplx": "alltoall", "deepep_low_latency": "alltoall",
		"deepep-high-throughput": "alltoall", "flashinfer_nvlink_one_sided": "alltoall", "mori": "alltoall", "nixl_ep": "alltoall", "auto": "alltoall",
	} {
		f := flags{DP: 8, TP: 1, EP: true, Backend: name, MaxBatchedTokens: 4096}
		l, err := f.layout(folder.Config)
		require.NoError(t, err, name)
		require.Equal(t, want, l.Backend, name)
	}
	// Two ranks own half of the experts each, so a token of top 4 visits nearly always both.
	f := flags{DP: 2, TP: 1, EP: true, Backend: "auto", MaxBatchedTokens: 4096}
	l, err := f.layout(folder.Config)
	require.NoError(t, err)
	require.Equal(t, "agrs", l.Backend)
}
