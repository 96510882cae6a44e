package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftgo/weft/comm"
)

const (
	defaultSilence = 15 * time.Second
	defaultJoin    = 5 * time.Minute
	defaultLeave   = time.Minute
)

// Client is one process's side of the store of its job, and its way to learn that another process is gone. Any goroutine may
// use it. When a process or the store is lost, every operation that waits, and every later one, returns Remote with that
// process as Peer. Where ctx has a deadline, a wait ends a quarter of the time before it, or half a second, so that the store can
// still say who is missing.
type Client struct {
	job    Job
	self   member
	leave  time.Duration
	most   int // bytes of a frame's body
	limits Limits
	link   *link
	server *Server // ours, nil if another process serves
	wg     sync.WaitGroup
	number atomic.Uint64

	mu      sync.Mutex
	waiting map[uint64]chan answer
	cause   *comm.Error   // of this process's own Abort, which comes before what the store says
	err     *comm.Error   // why the job is dead
	dead    chan struct{} // closed when err is set
	gone    chan struct{} // closed by Leave
	left    bool
}

// answer is what came back for one operation.
type answer struct {
	values [][]byte
	err    *comm.Error
}

// Job returns who this process is.
func (c *Client) Job() Job { return c.job }

// Done is closed when the job is dead: a process or the store was lost, or a process said Abort. Leave does not close it.
func (c *Client) Done() <-chan struct{} { return c.dead }

// Err returns why the job is dead, nil while it lives. It is a *comm.Error whose Peer is the process to blame.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return nil
	}
	return c.err
}

// Set implements Store.
func (c *Client) Set(ctx context.Context, key string, value []byte) error {
	_, err := c.call(ctx, kindSet, "set", &request{key: key, value: value})
	return err
}

// Get implements Store.
func (c *Client) Get(ctx context.Context, key string) ([]byte, error) {
	values, err := c.call(ctx, kindGet, "get", &request{key: key})
	if err != nil {
		return nil, err
	}
	if len(values) != 1 {
		return nil, c.failure("get", key, fmt.Errorf("%w: %d values", errFrame, len(values)))
	}
	return values[0], nil
}

// Add implements Store.
func (c *Client) Add(ctx context.Context, key string, delta int64) (int64, error) {
	values, err := c.call(ctx, kindAdd, "add", &request{key: key, number: delta})
	if err != nil {
		return 0, err
	}
	if len(values) != 1 {
		return 0, c.failure("add", key, fmt.Errorf("%w: %d values", errFrame, len(values)))
	}
	return strconv.ParseInt(string(values[0]), 10, 64)
}

// Forget removes key, if it is there.
func (c *Client) Forget(ctx context.Context, key string) error {
	_, err := c.call(ctx, kindForget, "forget", &request{key: key})
	return err
}

// Gather implements Gatherer.
func (c *Client) Gather(ctx context.Context, name string, rank, size int, mine []byte) ([][]byte, error) {
	if size < 1 || size > maxRanks || rank < 0 || rank >= size {
		return nil, c.failure("exchange", name, invalid("rank %d of %d", rank, size))
	}
	values, err := c.call(ctx, kindGather, "exchange", &request{key: name, rank: uint32(rank), size: uint32(size), value: mine})
	if err == nil && len(values) != size {
		return nil, c.failure("exchange", name, fmt.Errorf("%w: %d values", errFrame, len(values)))
	}
	return values, err
}

// failure dresses an error with the operation and this process.
func (c *Client) failure(op, key string, err error) error {
	e := failure(op, key, err).(*comm.Error)
	e.Rank = c.job.Rank
	return e
}

// call runs one operation to its end, ctx's or the job's.
func (c *Client) call(ctx context.Context, k kind, op string, q *request) ([][]byte, error) {
	l := c.limits
	if k == kindAbort { // its value is a text of at most maxText, which no limit may keep from the others
		l.ValueBytes = maxText
	}
	if len(q.key) > l.KeyBytes || len(q.value) > l.ValueBytes {
		return nil, c.failure(op, q.key, invalid("a key of %d and a value of %d bytes; the most are %d and %d", len(q.key), len(q.value), l.KeyBytes, l.ValueBytes))
	}
	if deadline, ok := ctx.Deadline(); ok && k != kindAdd {
		// The server's clock ends a little before ours, so that its answer, which names who is missing, still comes.
		left := time.Until(deadline)
		q.number = int64(max(left-min(left/4, 500*time.Millisecond), 1))
	}
	if err := alive(ctx); err != nil {
		return nil, c.failure(op, q.key, err)
	}
	id, ch, err := c.start()
	if err != nil {
		return nil, c.failure(op, q.key, err)
	}
	defer c.end(id)
	c.link.send(func(b []byte) []byte { return q.append(b, k, id) })
	select {
	case a := <-ch:
		return c.result(op, q.key, a)
	case <-c.dead:
		select {
		case a := <-ch: // it came before the end
			return c.result(op, q.key, a)
		default:
		}
		return nil, c.failure(op, q.key, c.Err())
	case <-c.gone:
		return nil, c.failure(op, q.key, errLeft)
	case <-ctx.Done():
		c.link.send(func(b []byte) []byte { return appendHead(b, kindCancel, id, 0) })
		return nil, c.failure(op, q.key, ended(ctx, "no answer"))
	}
}

func (c *Client) result(op, key string, a answer) ([][]byte, error) {
	if a.err != nil {
		return nil, c.failure(op, key, a.err)
	}
	return a.values, nil
}

var errLeft = &comm.Error{Peer: comm.NoPeer, Code: comm.Aborted, Err: errors.New("this process has left the job")}

// start gives an operation its number.
func (c *Client) start() (uint64, chan answer, error) {
	id, ch := c.number.Add(1), make(chan answer, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return 0, nil, c.err
	case c.left:
		return 0, nil, errLeft
	}
	c.waiting[id] = ch
	return id, ch, nil
}

func (c *Client) end(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// read takes what the server sends until the connection ends.
func (c *Client) read() {
	defer c.link.cut()
	for {
		f, err := c.link.read(c.most)
		if err != nil {
			c.lost(err)
			return
		}
		var a answer
		switch f.kind {
		case kindPing:
			continue
		case kindLeave: // the last frame
		case kindValues:
			a.values, err = parseValues(f.body)
		case kindError:
			a.err, err = parseError(f.body)
		case kindDead:
			var e *comm.Error
			if e, err = parseError(f.body); err == nil {
				c.die(e)
				return
			}
		default:
			err = fmt.Errorf("%w: kind %d", errFrame, f.kind)
		}
		if err != nil {
			c.lost(err)
			return
		}
		c.mu.Lock()
		ch := c.waiting[f.id]
		delete(c.waiting, f.id)
		c.mu.Unlock()
		if ch != nil {
			ch <- a
		}
		if f.kind == kindLeave {
			return
		}
	}
}

// beat sends a sign of life five times in the shorter of both sides' silences.
func (c *Client) beat(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.link.send(func(b []byte) []byte { return appendHead(b, kindPing, 0, 0) })
		case <-c.dead:
			return
		case <-c.gone:
			return
		}
	}
}

// lost handles the end of the connection.
func (c *Client) lost(err error) {
	who, peer := "process 0", 0
	if c.job.Served {
		who, peer = "the launcher", comm.NoPeer
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("silent for %v", c.link.silence)
	} else if errors.Is(err, io.EOF) {
		err = errors.New("connection closed")
	}
	c.die(&comm.Error{Peer: peer, Code: comm.Remote, Err: fmt.Errorf("lost the store at %s, which %s serves: %w", c.job.Address, who, err)})
}

// die declares the job dead on this side. Only the first cause counts, and none after Leave.
func (c *Client) die(e *comm.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.left {
		return
	}
	if c.cause != nil {
		e = c.cause
	}
	e.Op, e.Rank = "store", c.job.Rank
	c.err = e
	close(c.dead)
}

// Abort tells all processes that this one has failed, and why: their job is dead, and so is this one's. It waits for nobody
// but the store, and for that not longer than ctx.
func (c *Client) Abort(ctx context.Context, cause error) error {
	if cause == nil {
		cause = errors.New("aborted without a cause")
	}
	own := &comm.Error{Peer: c.self.peer(), Code: comm.Aborted, Err: fmt.Errorf("this process failed: %w", cause)}
	c.mu.Lock()
	c.cause = own
	c.mu.Unlock()
	err := c.abort(ctx, 0, cause)
	c.die(own)
	return err
}

// Blame tells all processes that process rank is lost, and why. Only agents may: they see how processes end. It returns when the
// job is dead, perhaps for another reason, which was first.
func (c *Client) Blame(ctx context.Context, rank int, cause error) error {
	if err := c.abort(ctx, uint32(rank+1), cause); err != nil {
		return err
	}
	select {
	case <-c.dead:
		return nil
	case <-ctx.Done():
		return c.failure("blame", "", ended(ctx, "the job lives on"))
	}
}

// abort sends the end of the job; blamed is the process to blame, from 1, or 0 for this one.
func (c *Client) abort(ctx context.Context, blamed uint32, cause error) error {
	text := cause.Error()
	_, err := c.call(ctx, kindAbort, "abort", &request{rank: blamed, value: []byte(text[:min(len(text), maxText)])})
	return err
}

// Leave ends this process's part in order: it is missed by nobody. Every later operation is Aborted. In the process that serves
// the store it waits until all others have left, or the job is dead, for they need the store to the end. A second call does
// nothing. It frees everything even when it returns an error.
func (c *Client) Leave(ctx context.Context) error {
	var err error
	if c.Err() == nil {
		_, err = c.call(ctx, kindLeave, "leave", &request{})
	}
	c.mu.Lock()
	again := c.left
	if !again {
		c.left = true
		close(c.gone)
	}
	c.mu.Unlock()
	if again {
		return nil
	}
	c.link.cut()
	c.wg.Wait()
	if c.server != nil {
		if _, ok := ctx.Deadline(); !ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.leave)
			defer cancel()
		}
		err = errors.Join(err, c.server.Drain(ctx), c.server.Close())
	}
	if e := c.Err(); e != nil && err != nil {
		return e
	}
	return err
}

// identity names this process in messages.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return fmt.Sprintf("%.80s, pid %d", host, os.Getpid())
}
