package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/patience"
)

var quiet = slog.New(slog.DiscardHandler)

// freeAddress is a port of the loopback device that nobody listened on a moment ago.
func freeAddress(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// within is a context that ends d after now, and with the test.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// joinAll lets size processes join one job, and leaves it at the end of the test.
func joinAll(t testing.TB, size int, cfg Config) []*Client {
	addr := freeAddress(t)
	clients, errs := make([]*Client, size), make([]error, size)
	cfg.Log = quiet
	var wg sync.WaitGroup
	for i := range size {
		wg.Go(func() {
			clients[i], errs[i] = Join(within(t, 20*time.Second), Job{Rank: i, Size: size, LocalSize: size, Address: addr, Token: "secret"}, cfg)
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	t.Cleanup(func() { leaveAll(clients) })
	return clients
}

func leaveAll(clients []*Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	errs := make([]error, len(clients))
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() { errs[i] = c.Leave(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func TestTCP(t *testing.T) {
	clients := joinAll(t, 3, Config{})
	for _, c := range clients[1:] {
		testStore(t, c)
		require.NoError(t, c.Set(t.Context(), "n", []byte("0")))
		_, err := c.Add(t.Context(), "m", 0)
		require.NoError(t, err)
		break // the keys of testStore are used up
	}
	testExchange(t, func(rank int) Store { return clients[rank%3] })
	require.NoError(t, clients[0].Set(t.Context(), "from 0", []byte("x")))
	got, err := clients[2].Get(t.Context(), "from 0")
	require.NoError(t, err)
	require.Equal(t, "x", string(got))
	require.NoError(t, leaveAll(clients))
	for _, c := range clients {
		require.NoError(t, c.Err())
		require.Empty(t, c.waiting)
		_, err := c.Get(t.Context(), "a")
		require.ErrorIs(t, err, comm.Aborted)
		require.ErrorContains(t, err, "has left")
		require.NoError(t, c.Leave(t.Context()), "again")
	}
}

// A job of one process needs no address, no token and no port.
func TestOneProcess(t *testing.T) {
	c, err := Join(t.Context(), Job{Size: 1}, Config{})
	require.NoError(t, err)
	testStore(t, c)
	require.NoError(t, c.Leave(t.Context()))
}

func TestExchangeOverTCPNamesWhoDidNotCome(t *testing.T) {
	patience.Try(t, 2*time.Second, nobodyCame)
}

func nobodyCame(t testing.TB, wait time.Duration) {
	clients := joinAll(t, 4, Config{})
	var wg sync.WaitGroup
	for _, rank := range []int{0, 1, 3} {
		wg.Go(func() {
			start := time.Now()
			_, err := Exchange(within(t, wait), clients[rank], "x", rank, 4, nil)
			require.ErrorIs(t, err, comm.Timeout)
			require.ErrorContains(t, err, fmt.Sprintf("rank %d: timeout: waited for rank 2", rank))
			require.Less(t, time.Since(start), wait+wait/4)
		})
	}
	wg.Wait()
	require.NoError(t, clients[0].Err(), "the job lives on")
}

// A store that starts late is waited for.
func TestLateStore(t *testing.T) {
	addr := freeAddress(t)
	job := func(rank int) Job { return Job{Rank: rank, Size: 2, Address: addr, Token: "t"} }
	var c1 *Client
	var err1 error
	done := make(chan struct{})
	go func() {
		defer close(done)
		c1, err1 = Join(within(t, 20*time.Second), job(1), Config{Log: quiet})
	}()
	time.Sleep(300 * time.Millisecond)
	c0, err := Join(within(t, 20*time.Second), job(0), Config{Log: quiet})
	require.NoError(t, err)
	<-done
	require.NoError(t, err1)
	require.NoError(t, leaveAll([]*Client{c0, c1}))
}

func TestRefusals(t *testing.T) {
	addr := freeAddress(t)
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	s, err := Serve(l, ServerConfig{Token: "right", Size: 2, Log: quiet})
	require.NoError(t, err)
	defer s.Close()
	join := func(rank, size int, token string) error {
		start := time.Now()
		_, err := Join(within(t, 20*time.Second), Job{Rank: rank, Size: size, Address: addr, Token: token, Served: true}, Config{})
		require.Error(t, err)
		require.Less(t, time.Since(start), 3*time.Second, "it says so at once")
		var e *comm.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, rank, e.Rank)
		return err
	}
	err = join(1, 2, "wrong")
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorContains(t, err, "join: rank 1: invalid: wrong token")
	err = join(1, 3, "right")
	require.ErrorContains(t, err, "this store is for a job of 2 processes, but process 1 says 3")
	require.NoError(t, s.Err(), "who is turned away does not kill the job")

	c := dialOne(t, addr, 1, 2, "right")
	err = join(1, 2, "right")
	require.ErrorContains(t, err, "process 1 is here already")
	require.NoError(t, c.Leave(t.Context()))
	require.Eventually(t, func() bool { return len(s.names()) == 0 }, 5*time.Second, time.Millisecond)
	err = join(1, 2, "right")
	require.ErrorContains(t, err, "process 1 has left")

	// Process 0 cannot listen where someone does.
	_, err = Join(within(t, time.Second), Job{Rank: 0, Size: 2, Address: addr, Token: "right"}, Config{})
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorContains(t, err, "address already in use")
	require.ErrorContains(t, err, "WEFT_STORE")
}

// dialOne joins without waiting for others.
func dialOne(t testing.TB, addr string, rank, size int, token string) *Client {
	c, err := connect(within(t, 20*time.Second), Job{Rank: rank, Size: size, Address: addr, Token: token}, member{rank: rank},
		Config{Log: quiet}.withDefaults(), (&net.Dialer{}).DialContext)
	require.NoError(t, err)
	return c
}

func (s *Server) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for m := range s.members {
		names = append(names, m.String())
	}
	return names
}

// What is no weft store is named as such: something that talks, and something that does not.
func TestNotAStore(t *testing.T) {
	for name, text := range map[string]string{"talks": "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "short": "220 hi\r\n"} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = c.Write([]byte(text))
					_ = c.Close()
				}
			}()
			_, err = Join(within(t, 10*time.Second), Job{Rank: 1, Size: 2, Address: l.Addr().String(), Token: "t"}, Config{})
			require.ErrorIs(t, err, comm.Invalid)
			require.ErrorContains(t, err, "is not this version's weft store")
		})
	}
	_, err := Join(within(t, 300*time.Millisecond), Job{Rank: 1, Size: 2, Address: freeAddress(t), Token: "t"}, Config{})
	require.ErrorIs(t, err, comm.Timeout)
	require.ErrorContains(t, err, "process 0, which serves it, has not started")
	require.ErrorContains(t, err, "connection refused")
}

func TestJobValidate(t *testing.T) {
	for want, job := range map[string]Job{
		"process 2 of 2":                {Rank: 2, Size: 2},
		"process -1 of 2":               {Rank: -1, Size: 2},
		"use FromEnv":                   {},
		"need the address of a store":   {Size: 2, Token: "t"},
		"need a token":                  {Size: 2, Address: "a:1"},
		`address "a" is not host:port`:  {Size: 2, Address: "a", Token: "t"},
		`address "a:0" is not host:por`: {Size: 2, Address: "a:0", Token: "t"},
	} {
		_, err := Join(t.Context(), job, Config{})
		require.ErrorIs(t, err, comm.Invalid)
		require.ErrorContains(t, err, want)
	}
	_, err := Serve(newPipes(), ServerConfig{Size: 1})
	require.ErrorIs(t, err, comm.Invalid)
}

// A client that sends nonsense after the handshake is lost, and the job with it; one that does so before is nobody.
func TestNonsenseOnTheWire(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := Serve(l, ServerConfig{Token: "t", Size: 2, Log: quiet})
	require.NoError(t, err)
	defer s.Close()
	for range 2 * maxOpening {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		_, _ = conn.Write(make([]byte, 100))
		require.NoError(t, conn.Close())
	}
	a, b := dialOne(t, l.Addr().String(), 0, 2, "t"), dialOne(t, l.Addr().String(), 1, 2, "t")
	require.NoError(t, b.Set(t.Context(), "x", nil))
	a.link.send(func(b []byte) []byte { return append(b, 255, 255, 255, 255, 1, 2, 3, 4, 5, 6, 7, 8, 9) })
	_, err = b.Get(within(t, 10*time.Second), "never")
	require.ErrorIs(t, err, comm.Remote)
	require.ErrorContains(t, err, "malformed frame: a body of")
	_, _ = a.Leave(t.Context()), b.Leave(t.Context())
}

func TestManyWaiting(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := Serve(l, ServerConfig{Token: "t", Size: 2, Log: quiet, Limits: Limits{Waiting: 3}})
	require.NoError(t, err)
	defer s.Close()
	c := dialOne(t, l.Addr().String(), 0, 2, "t")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			_, err := c.Get(ctx, "never")
			require.ErrorIs(t, err, comm.Aborted)
		})
	}
	require.Eventually(t, func() bool {
		s.table.mu.Lock()
		defer s.table.mu.Unlock()
		return len(s.table.gets["never"]) == 3
	}, 5*time.Second, time.Millisecond)
	_, err = c.Get(t.Context(), "never")
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorContains(t, err, "3 operations of this process wait already")
	cancel()
	wg.Wait()
	require.NoError(t, c.Set(t.Context(), "now", nil))
	require.Eventually(t, func() bool { // the cancelled ones made room
		_, err := c.Get(t.Context(), "now")
		return err == nil
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, c.Leave(t.Context()))
	require.Empty(t, s.table.gets)
}
