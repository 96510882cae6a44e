package proctest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm/rendezvous"
)

// Env is the variable in which a process finds its number, the address of the store and its token.
const Env = "WEFT_TEST_PROCESS"

const token = "proctest"

// Config says what to start.
type Config struct {
	Processes int
	Timeout   time.Duration // of all of it; 0 means 60 s
	Dies      int           // how many processes may end with an error, because the test kills them
	Env       []string      // further variables
	Absent    int           // processes that are never started: the last ones
}

// Result is what the processes said, in the parent.
type Result struct {
	Output  []string
	Failed  []int // those that ended with an error
	Elapsed time.Duration
}

// Run starts the test again, once for each process, and waits for all of them; the parent gets their output, and the test
// has failed when a process failed that should not. In such a process Run returns the client of the store and its number;
// the store is left when the test ends.
func Run(t *testing.T, cfg Config) (*rendezvous.Client, *Result) {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = 60 * time.Second
	}
	if v := os.Getenv(Env); v != "" {
		return child(t, v, cfg), nil
	}
	return nil, parent(t, cfg)
}

// Child reports whether this process was started by Run.
func Child() bool { return os.Getenv(Env) != "" }

func child(t *testing.T, v string, cfg Config) *rendezvous.Client {
	f := strings.Fields(v)
	require.Len(t, f, 2, v)
	rank, err := strconv.Atoi(f[0])
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), cfg.Timeout)
	defer cancel()
	c, err := rendezvous.Join(ctx, rendezvous.Job{Rank: rank, Size: cfg.Processes, Address: f[1], Token: token, Served: true},
		rendezvous.Config{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := c.Leave(ctx)
		if cfg.Dies == 0 && cfg.Absent == 0 && c.Err() == nil {
			require.NoError(t, err)
		}
	})
	return c
}

func parent(t *testing.T, cfg Config) *Result {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := rendezvous.Serve(l, rendezvous.ServerConfig{Token: token, Size: cfg.Processes, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), cfg.Timeout)
	defer cancel()
	n := cfg.Processes - cfg.Absent
	r := &Result{Output: make([]string, n)}
	start := time.Now()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range n {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v", "-test.timeout", (cfg.Timeout + 10*time.Second).String())
			cmd.Env = append(append(os.Environ(), fmt.Sprintf("%s=%d %s", Env, i, s.Addr())), cfg.Env...)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			cmd.WaitDelay = 2 * time.Second
			err := cmd.Run()
			mu.Lock()
			defer mu.Unlock()
			r.Output[i] = out.String()
			if err != nil {
				r.Failed = append(r.Failed, i)
				r.Output[i] += fmt.Sprintf("\n(ended after %v: %v)", time.Since(start).Round(time.Millisecond), err)
			}
		})
	}
	wg.Wait()
	r.Elapsed = time.Since(start)
	if len(r.Failed) > cfg.Dies {
		for i, out := range r.Output {
			t.Logf("process %d:\n%s", i, out)
		}
		t.Fatalf("processes %v failed, at most %d may (job: %v)", r.Failed, cfg.Dies, s.Err())
	}
	for i, out := range r.Output { // a process whose test did not run proves nothing
		if !strings.Contains(out, "--- PASS: "+t.Name()) && !slices.Contains(r.Failed, i) {
			if strings.Contains(out, "--- SKIP") {
				t.Skip(out)
			}
			t.Fatalf("process %d ran no test:\n%s", i, out)
		}
	}
	return r
}

// Die kills this process as a crash would: no deferred call and no cleanup runs.
func Die() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {}
}
