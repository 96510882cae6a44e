package rendezvous

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv("WEFT_TEST_STORE"); addr != "" {
		process(addr)
		return
	}
	goleak.VerifyTestMain(m)
}

// process is one process of a job: it joins, says so, and waits for the others, who do not answer. It prints the error.
func process(addr string) {
	rank, _ := strconv.Atoi(os.Getenv("WEFT_TEST_RANK"))
	silence, _ := time.ParseDuration(os.Getenv("WEFT_TEST_SILENCE"))
	ctx, cancel := context.WithTimeout(context.Background(), 20*silence)
	defer cancel()
	c, err := Join(ctx, Job{Rank: rank, Size: 4, Address: addr, Token: os.Getenv("WEFT_TEST_TOKEN")}, Config{Silence: silence, Log: quiet})
	if err != nil {
		fmt.Println("join:", err)
		os.Exit(1)
	}
	fmt.Println("joined")
	_, err = Exchange(ctx, c, "step", rank, 5, nil) // the fifth never comes
	_, again := c.Get(ctx, "later")
	var e *comm.Error
	if !errors.As(err, &e) || !errors.Is(again, e.Code) {
		fmt.Println("not what is wanted:", err, again)
		os.Exit(1)
	}
	select {
	case <-c.Done():
	default:
		fmt.Println("Done is open")
		os.Exit(1)
	}
	fmt.Printf("%v of process %d: %v\n", e.Code, e.Peer, err)
	_ = c.Leave(ctx)
}

// child is a running process and what it says.
type child struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func (c *child) next() string {
	if c.lines.Scan() {
		return c.lines.Text()
	}
	return "(no more output)"
}

// startJob starts four processes and waits until all have joined.
func startJob(t testing.TB, silence time.Duration) []*child {
	addr := freeAddress(t)
	children := make([]*child, 4)
	for rank := range children {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "WEFT_TEST_STORE="+addr, "WEFT_TEST_TOKEN=t", fmt.Sprint("WEFT_TEST_SILENCE=", silence), fmt.Sprint("WEFT_TEST_RANK=", rank))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		children[rank] = &child{cmd: cmd, lines: bufio.NewScanner(out)}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_, _ = io.Copy(io.Discard, out)
			_ = cmd.Wait()
		})
	}
	for _, c := range children {
		require.Equal(t, "joined", c.next())
	}
	return children
}

// A store that dies: every client that waits, and every later call, gets an error, long before its own deadline.
func TestStoreDies(t *testing.T) {
	l := newPipes()
	s, err := Serve(l, ServerConfig{Token: "t", Size: 3, Log: quiet})
	require.NoError(t, err)
	clients := make([]*Client, 3)
	for i := range clients {
		clients[i], err = connect(t.Context(), Job{Rank: i, Size: 3, Address: "x:1", Token: "t", Served: true}, member{rank: i}, Config{}.withDefaults(), l.dial)
		require.NoError(t, err)
	}
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			_, err := c.Get(within(t, time.Minute), "never")
			require.ErrorIs(t, err, comm.Remote)
			require.ErrorContains(t, err, fmt.Sprintf("rank %d: remote: lost the store at x:1, which the launcher serves", i))
		})
	}
	require.Eventually(t, func() bool {
		s.table.mu.Lock()
		defer s.table.mu.Unlock()
		return len(s.table.gets["never"]) == 3
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, s.Close())
	wg.Wait()
	for _, c := range clients {
		<-c.Done()
		require.ErrorIs(t, c.Set(t.Context(), "x", nil), comm.Remote)
		require.Error(t, c.Err())
		_ = c.Leave(t.Context())
	}
}

// A process that never starts is named by all others, at their deadline.
func TestProcessNeverStarts(t *testing.T) {
	addr := freeAddress(t)
	var wg sync.WaitGroup
	start := time.Now()
	for _, rank := range []int{0, 1, 3} {
		wg.Go(func() {
			_, err := Join(within(t, 2*time.Second), Job{Rank: rank, Size: 4, Address: addr, Token: "t"}, Config{Log: quiet})
			require.Error(t, err)
			require.True(t, errors.Is(err, comm.Timeout) || errors.Is(err, comm.Remote), "%v", err)
			require.ErrorContains(t, err, "not all processes of the job have started: waited for rank 2")
		})
	}
	wg.Wait()
	require.Less(t, time.Since(start), 4*time.Second)
}

// A process that fails tells the others why.
func TestAbort(t *testing.T) {
	clients := joinAll(t, 3, Config{})
	done := make(chan error)
	go func() {
		_, err := clients[0].Get(within(t, 10*time.Second), "never")
		done <- err
	}()
	require.NoError(t, clients[2].Abort(t.Context(), errors.New("out of memory: 3 of 2 GiB")))
	err := <-done
	require.ErrorIs(t, err, comm.Remote)
	var e *comm.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, 2, e.Peer)
	require.ErrorContains(t, err, "failed: out of memory: 3 of 2 GiB")
	<-clients[1].Done()
	require.ErrorIs(t, clients[2].Err(), comm.Aborted)
	require.ErrorIs(t, clients[2].Set(t.Context(), "x", nil), comm.Aborted)
}

// The reason of an abort reaches the others whatever the limit of values is.
func TestAbortIsNoValue(t *testing.T) {
	clients := joinAll(t, 2, Config{Limits: Limits{ValueBytes: 16}})
	cause := errors.New("no memory for an expert that is needed")
	require.NoError(t, clients[0].Abort(t.Context(), cause))
	<-clients[1].Done()
	require.ErrorContains(t, clients[1].Err(), "failed: "+cause.Error())
}

// A context of the job ends when another process is lost, with that as its cause.
func TestContext(t *testing.T) {
	clients := joinAll(t, 2, Config{})
	ctx, cancel := clients[0].Context(t.Context())
	defer cancel()
	require.NoError(t, ctx.Err())
	require.NoError(t, clients[1].Abort(t.Context(), errors.New("no memory")))
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), comm.Remote)
	require.ErrorContains(t, context.Cause(ctx), "no memory")
	var e *comm.Error
	_, err := NewMemory().Get(ctx, "x") // what it is given to says the same
	require.ErrorAs(t, err, &e)
	require.Equal(t, comm.Remote, e.Code)
	require.Equal(t, 1, e.Peer)
	ctx, cancel = clients[1].Context(t.Context())
	<-ctx.Done()
	cancel()
	cancel()
}

// The worlds of all processes die with the first, with its reason.
func TestGuard(t *testing.T) {
	clients := joinAll(t, 2, Config{})
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, c := range clients {
		w, err := local.Open(local.Config{Ranks: 2, Timeout: 20 * time.Second})
		require.NoError(t, err)
		stop := c.Guard(w)
		wg.Go(func() {
			defer w.Close(context.Background())
			defer stop()
			errs[i] = w.Run(t.Context(), func(ctx context.Context, r *comm.Comm) error {
				if i == 1 && r.Rank() == 1 {
					return errors.New("broken weights")
				}
				if r.Rank() == 1 {
					<-ctx.Done()
					return context.Cause(ctx)
				}
				return r.Barrier(comm.Stream{})
			})
			if i == 1 { // until the other has heard
				<-clients[0].Done()
			}
		})
	}
	wg.Wait()
	require.ErrorContains(t, errs[1], "broken weights")
	require.ErrorContains(t, errs[0], "process 1 (")
	require.ErrorContains(t, errs[0], "broken weights")
	require.ErrorIs(t, errs[0], comm.Aborted)
}

// Both sides notice silence, in the time they were told; signs of life keep an idle job alive.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		s, err := Serve(l, ServerConfig{Token: "t", Size: 2, Silence: 10 * time.Second, Log: quiet})
		require.NoError(t, err)
		cfg := Config{Log: quiet}.withDefaults()
		c, err := connect(t.Context(), Job{Size: 2, Address: "x:1", Token: "t"}, member{}, cfg, l.dial)
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, c.link.silence, "the shorter of both")
		conn, err := l.dial(t.Context(), "", "")
		require.NoError(t, err)
		_, err = introduce(conn, "t", hello{member: member{rank: 1}, size: 2, name: "mute"})
		require.NoError(t, err)
		heard := make(chan struct{})
		go func() { // it reads and says nothing
			defer close(heard)
			_, _ = io.Copy(io.Discard, conn)
		}()
		start := time.Now()
		_, err = c.Get(within(t, time.Hour), "never")
		require.ErrorContains(t, err, "process 1 (mute) is lost: it was silent for 10s")
		require.Equal(t, 10*time.Second, time.Since(start))
		_ = c.Leave(t.Context())
		require.NoError(t, s.Close())
		<-heard
	})
	synctest.Test(t, func(t *testing.T) {
		c, err := Join(t.Context(), Job{Size: 1}, Config{Silence: time.Second, Log: quiet})
		require.NoError(t, err)
		_, err = c.Get(within(t, time.Hour), "never")
		require.ErrorIs(t, err, comm.Timeout, "an hour of signs of life")
		require.NoError(t, c.Leave(t.Context()))
	})
}

// Process 0 leaves last: the others need its store.
func TestLeaveOfTheServer(t *testing.T) {
	clients := joinAll(t, 2, Config{})
	err := clients[0].Leave(within(t, 100*time.Millisecond))
	require.ErrorIs(t, err, comm.Timeout)
	require.ErrorContains(t, err, "1 of 2 processes have left")
	<-clients[1].Done()
	require.True(t, strings.Contains(clients[1].Err().Error(), "lost the store"), clients[1].Err())
}
