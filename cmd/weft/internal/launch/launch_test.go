//go:build unix

package launch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm/rendezvous"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv("WEFT_TEST_MODE"); mode != "" {
		os.Exit(program(mode))
	}
	goleak.VerifyTestMain(m)
}

// program is what the tests start.
func program(mode string) int {
	rank, _ := strconv.Atoi(os.Getenv("WEFT_RANK"))
	switch mode {
	case "environment":
		for _, name := range []string{"WEFT_RANK", "WEFT_SIZE", "WEFT_LOCAL_RANK", "WEFT_LOCAL_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"} {
			fmt.Print(os.Getenv(name), " ")
		}
		fmt.Println(os.Getenv("MASTER_ADDR"), os.Getenv("WEFT_STORE") != "", os.Getenv("WEFT_TOKEN") != "", os.Getenv("MASTER_PORT") != "")
		fmt.Fprint(os.Stderr, "no newline")
	case "write":
		for i := range 500 { // in pieces: lines must come out whole
			fmt.Printf("line %d ", i)
			fmt.Print(strings.Repeat(strconv.Itoa(rank), 60))
			fmt.Println(" end")
		}
	case "store": // rank 1 ends early, by itself or killed; the others hear of it from the store
		return useStore(rank, os.Getenv("WEFT_TEST_END"))
	case "fail":
		if rank == 1 {
			return 7
		}
		time.Sleep(time.Minute)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		fmt.Println("ready")
		if path := os.Getenv("WEFT_TEST_END"); path != "" { // rank 1 ends, as soon as rank 0 ignores what it will be told
			if rank == 1 {
				for _, err := os.Stat(path); err != nil; _, err = os.Stat(path) {
					time.Sleep(time.Millisecond)
				}
				return 9
			}
			_ = os.WriteFile(path, nil, 0o600)
		}
		time.Sleep(time.Minute)
	case "launcher": // a launcher of stubborn ranks, for a test that kills it
		cfg, _, _ := config(2, "stubborn")
		cfg.Stdout, cfg.Stderr = os.Stdout, os.Stderr
		cfg.Command = []string{"sh", "-c", "echo pid $$; exec " + os.Args[0]}
		_, _ = Run(context.Background(), cfg, nil)
	case "graceful":
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		fmt.Println("ready")
		<-c
		fmt.Println("bye")
	case "grandchild":
		cmd := exec.Command("sleep", "60")
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			return 1
		}
		fmt.Println("pid", cmd.Process.Pid)
	}
	return 0
}

func useStore(rank int, end string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	job, err := rendezvous.FromEnv(nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	c, err := rendezvous.Join(ctx, job, rendezvous.Config{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	victim := 1
	if v := os.Getenv("WEFT_TEST_VICTIM"); v != "" {
		victim, _ = strconv.Atoi(v)
	}
	if rank == victim {
		switch end {
		case "killed":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "exit":
			return 5
		case "desert": // no Leave
			return 0
		}
	}
	if end == "desert" {
		time.Sleep(time.Minute)
	}
	if end != "" {
		_, err = c.Get(ctx, "never")
		fmt.Println("survivor:", err)
		return 3
	}
	if _, err := rendezvous.Exchange(ctx, c, "x", job.Rank, job.Size, nil); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("all here")
	if err := c.Leave(ctx); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// buffer is an output that tests read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// config starts this test program in a mode.
func config(n int, mode string, more ...string) (Config, *buffer, *buffer) {
	out, err := &buffer{}, &buffer{}
	return Config{Command: []string{os.Args[0]}, PerNode: n, Stdout: out, Stderr: err, Grace: 10 * time.Second,
		Env: append(append(os.Environ(), "WEFT_TEST_MODE="+mode), more...)}, out, err
}

func run(t *testing.T, cfg Config) int {
	code, err := Run(t.Context(), cfg, nil)
	require.NoError(t, err)
	return code
}

func TestEnvironment(t *testing.T) {
	cfg, out, errs := config(3, "environment")
	require.Zero(t, run(t, cfg))
	for rank := range 3 {
		require.Contains(t, out.String(), fmt.Sprintf("[%d] %d 3 %d 3 %d 3 %d 3 0 127.0.0.1 true true true\n", rank, rank, rank, rank, rank))
		require.Contains(t, errs.String(), fmt.Sprintf("[%d] no newline\n", rank))
	}
	require.Equal(t, 3, strings.Count(out.String(), "\n"))
	cfg, out, _ = config(1, "environment")
	cfg.NoPrefix = true
	require.Zero(t, run(t, cfg))
	require.True(t, strings.HasPrefix(out.String(), "0 1 0 1"))
}

func TestLinesComeOutWhole(t *testing.T) {
	cfg, out, _ := config(4, "write")
	require.Zero(t, run(t, cfg))
	next := [4]int{}
	for line := range strings.Lines(out.String()) {
		rank, err := strconv.Atoi(line[1:2])
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("[%d] line %d %s end\n", rank, next[rank], strings.Repeat(strconv.Itoa(rank), 60)), line)
		next[rank]++
	}
	require.Equal(t, [4]int{500, 500, 500, 500}, next)

	var got bytes.Buffer
	o := &output{}
	o.copy(&got, "[0] ", strings.NewReader(strings.Repeat("x", 2*maxLine+5)+"\ny"))
	require.Equal(t, []int{4 + maxLine + 1, 4 + maxLine + 1, 4 + 5 + 1, 4 + 1 + 1}, lengths(got.String()), "a line without end is broken")
}

func lengths(s string) (n []int) {
	for line := range strings.Lines(s) {
		n = append(n, len(line))
	}
	return n
}

func TestStore(t *testing.T) {
	cfg, out, errs := config(3, "store")
	require.Zero(t, run(t, cfg), errs)
	require.Equal(t, 3, strings.Count(out.String(), "all here"))
	require.NotContains(t, errs.String(), "weft launch")
}

// Ranks get the port that port 0 became.
func TestStoreAnyPort(t *testing.T) {
	cfg, out, errs := config(3, "store")
	cfg.Store = "127.0.0.1:0"
	require.Zero(t, run(t, cfg), errs)
	require.Equal(t, 3, strings.Count(out.String(), "all here"))
}

// The exit code is that of the rank that went first, and the survivors hear of it from the store and end by themselves.
func TestRankDies(t *testing.T) {
	for _, tt := range []struct {
		end  string
		code int
		want string
	}{{"killed", 137, "was killed by SIGKILL"}, {"exit", 5, "exited with code 5"}} {
		t.Run(tt.end, func(t *testing.T) {
			cfg, out, errs := config(3, "store", "WEFT_TEST_END="+tt.end)
			start := time.Now()
			require.Equal(t, tt.code, run(t, cfg))
			require.Less(t, time.Since(start), cfg.Grace, "nobody had to be told to end")
			require.Contains(t, errs.String(), tt.want)
			require.Regexp(t, `weft launch: rank 1 \(pid \d+\)`, errs.String())
			for _, rank := range []int{0, 2} {
				require.Regexp(t, fmt.Sprintf(`\[%d\] survivor: store get "never": rank %d: remote \(rank 1\)`, rank, rank), out.String())
			}
		})
	}
}

// A rank that returns without leaving the job has not failed, and yet the others cannot go on.
func TestRankDeserts(t *testing.T) {
	cfg, _, errs := config(3, "store", "WEFT_TEST_END=desert")
	cfg.Grace = 500 * time.Millisecond
	require.Equal(t, 143, run(t, cfg))
	require.Regexp(t, `weft launch: store: rank 1: remote \(rank 1\): process 1 \(.*\) is lost: .*returned early.*; 2 on this node have 500ms to end`, errs.String())
}

// Ranks that know nothing of a store are told to end after the grace, and killed after a second one.
func TestGrace(t *testing.T) {
	cfg, _, errs := config(3, "fail")
	cfg.Grace = 200 * time.Millisecond
	start := time.Now()
	require.Equal(t, 7, run(t, cfg))
	require.GreaterOrEqual(t, time.Since(start), cfg.Grace)
	require.Less(t, time.Since(start), 10*time.Second)
	require.Contains(t, errs.String(), "exited with code 7; 2 more on this node have 200ms to end")
	require.Contains(t, errs.String(), "was killed by SIGTERM")

	cfg, _, errs = config(2, "stubborn", "WEFT_TEST_END="+filepath.Join(t.TempDir(), "ready"))
	cfg.Grace = 200 * time.Millisecond
	require.Equal(t, 9, run(t, cfg))
	require.Contains(t, errs.String(), "killing 1 processes that did not end within 200ms of SIGTERM")
}

// awaitLines waits until text was written n times.
func awaitLines(t *testing.T, b *buffer, text string, n int) {
	require.Eventually(t, func() bool { return strings.Count(b.String(), text) == n }, 10*time.Second, time.Millisecond)
}

func TestSignals(t *testing.T) {
	signals := make(chan os.Signal, 1)
	cfg, out, errs := config(2, "graceful")
	go func() {
		awaitLines(t, out, "ready", 2)
		signals <- syscall.SIGTERM
	}()
	code, err := Run(t.Context(), cfg, signals)
	require.NoError(t, err)
	require.Zero(t, code)
	require.Equal(t, 2, strings.Count(out.String(), "bye"))
	require.Contains(t, errs.String(), "terminated: passed on to 2 processes")

	cfg, out, errs = config(2, "stubborn")
	go func() {
		awaitLines(t, out, "ready", 2)
		signals <- os.Interrupt
		awaitLines(t, errs, "passed on", 1)
		signals <- os.Interrupt
	}()
	code, err = Run(t.Context(), cfg, signals)
	require.NoError(t, err)
	require.Equal(t, 137, code)
	require.Contains(t, errs.String(), "a second signal (interrupt): killing 2 processes")

	cfg, out, _ = config(2, "stubborn")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		awaitLines(t, out, "ready", 2)
		cancel()
	}()
	code, err = Run(ctx, cfg, nil)
	require.NoError(t, err)
	require.Equal(t, 137, code)
}

// What a rank has started ends with it, and does not keep the launcher by its output.
func TestGrandchildren(t *testing.T) {
	cfg, out, _ := config(2, "grandchild")
	start := time.Now()
	require.Zero(t, run(t, cfg))
	require.Less(t, time.Since(start), 10*time.Second)
	pids := strings.Fields(strings.NewReplacer("[0] pid ", "", "[1] pid ", "").Replace(out.String()))
	require.Len(t, pids, 2)
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return gone(pid) }, 10*time.Second, time.Millisecond)
	}
}

// gone reports whether a process has ended; one that nobody waits for counts.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

// The ranks of a launcher that is killed die with it.
func TestLauncherIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills children with their parent")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "WEFT_TEST_MODE=launcher")
	out := &buffer{}
	cmd.Stdout = out
	require.NoError(t, cmd.Start())
	awaitLines(t, out, "ready", 2)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	n := 0
	for line := range strings.Lines(out.String()) {
		if _, pid, ok := strings.Cut(line, "pid "); ok {
			n++
			number, err := strconv.Atoi(strings.TrimSpace(pid))
			require.NoError(t, err)
			require.Eventually(t, func() bool { return gone(number) }, 10*time.Second, time.Millisecond)
		}
	}
	require.Equal(t, 2, n)
}

func TestCannotBegin(t *testing.T) {
	cfg, _, _ := config(2, "fail")
	cfg.Command = []string{"/no/such/program"}
	_, err := Run(t.Context(), cfg, nil)
	require.ErrorContains(t, err, "start /no/such/program")

	cfg, _, _ = config(1, "store")
	cfg.Nodes, cfg.Node, cfg.Store, cfg.Token, cfg.JoinTimeout = 2, 1, "127.0.0.1:1", "t", 200*time.Millisecond
	_, err = Run(t.Context(), cfg, nil)
	require.ErrorContains(t, err, "no store at 127.0.0.1:1")

	port, err := freePort("127.0.0.1")
	require.NoError(t, err)
	cfg.Node, cfg.Store = 0, fmt.Sprint("127.0.0.1:", port)
	_, err = Run(t.Context(), cfg, nil)
	require.ErrorContains(t, err, "waited for the launchers of nodes [1]")
	signals := make(chan os.Signal, 1)
	signals <- os.Interrupt
	cfg.JoinTimeout = time.Minute
	_, err = Run(t.Context(), cfg, signals)
	require.ErrorContains(t, err, "interrupt while waiting for other nodes")

	for want, cfg := range map[string]Config{
		"nothing to start":            {PerNode: 1},
		"-n 0: at least 1":            {Command: []string{"x"}},
		"at most 4096 processes":      {Command: []string{"x"}, PerNode: 1 << (strconv.IntSize / 2), Nodes: 1 << (strconv.IntSize / 2), Store: "a:1", Token: "x"},
		"--node-rank 2: nodes are 0":  {Command: []string{"x"}, PerNode: 1, Nodes: 2, Node: 2},
		"2 nodes need --rdzv":         {Command: []string{"x"}, PerNode: 1, Nodes: 2},
		"the same WEFT_TOKEN":         {Command: []string{"x"}, PerNode: 1, Nodes: 2, Store: "a:1"},
		"which port 0 becomes":        {Command: []string{"x"}, PerNode: 1, Nodes: 2, Store: "a:0", Token: "x"},
		"a grace of -1s":              {Command: []string{"x"}, PerNode: 1, Grace: -time.Second},
		`--rdzv "x" is not host:port`: {Command: []string{"x"}, PerNode: 1, Store: "x"},
	} {
		_, err := Run(t.Context(), cfg, nil)
		require.ErrorContains(t, err, want)
	}
}
