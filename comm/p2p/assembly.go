package p2p

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/gpurank"
	"github.com/weftgo/weft/internal/kernels"
)

// assembly is where the members of a group in this process meet on the host: the last one to come makes what all of them get,
// together with other processes if members are there. Members come
// here only after their kernels have met, so that a member in another call is found out by the kernels.
type assembly struct {
	call   int // its number in the group
	values []any
	num    int
	done   chan struct{}
	result any
	err    error
}

// assemble is a collective on the host. text describes the call; calls with other texts before the first space do not fit.
// finish is called once in a process, with the values of all its members, and its result is theirs. The rest is nil.
func (c *conn) assemble(ctx context.Context, kind, text string, value any, finish func(ctx context.Context, call int, values []any) (any, error)) (any, error) {
	if err := c.meet(ctx, kind, text); err != nil {
		return nil, err
	}
	g := c.g
	g.mu.Lock()
	a := g.next
	if a == nil {
		g.numCalls++
		a = &assembly{call: g.numCalls, values: make([]any, len(g.members)), done: make(chan struct{})}
		g.next = a
	}
	a.values[c.rank] = value
	a.num++
	last := a.num == g.local
	if last {
		g.next = nil
	}
	g.mu.Unlock()
	if last {
		a.result, a.err = finish(ctx, a.call, a.values)
		close(a.done)
		return a.result, a.err
	}
	limit := time.NewTimer(g.w.cfg.Timeout)
	defer limit.Stop()
	select {
	case <-a.done:
		return a.result, a.err
	case <-g.w.dead:
		return nil, comm.AbortedError(kind, c.r.index, fmt.Errorf("the world is dead: %w", g.w.cause))
	case <-ctx.Done():
		return nil, c.ended(ctx, 0)
	case <-limit.C:
		return nil, comm.Errorf(kind, c.r.index, comm.Timeout, "waited %v on the host for ranks whose kernels had met", g.w.cfg.Timeout)
	}
}

// meet lets the kernels of all members meet, under a name that no collective has, and waits for it.
func (c *conn) meet(ctx context.Context, kind, text string) error {
	if err := c.ready(); err != nil {
		if e := (*comm.Error)(nil); errors.As(err, &e) && e.Op == "" {
			e.Op = kind
		}
		return err
	}
	call := c.log.addSplit(text)
	c.calls.Add(1)
	h := fnv.New64a()
	_, _ = h.Write([]byte(kind))
	a := c.args
	a.Kind, a.Own, a.All, a.NumOwn, a.Ragged = kernels.Split, 0, 0, 0, 0
	a.Entry.Signature, a.Entry.Call, a.Entry.NumParts = h.Sum64(), call, 0
	a.SetEntryWords()
	st := c.r.streams.Own
	err := c.r.streams.Order(st)
	if err == nil {
		err = c.r.gpu.kernels.Collective(st, a, len(c.g.members), 1)
	}
	if err == nil {
		err = c.wait(ctx, st)
	}
	if e := (*comm.Error)(nil); err != nil && !errors.As(err, &e) {
		err = &comm.Error{Op: kind, Rank: c.r.index, Peer: comm.NoPeer, Code: gpurank.CodeOf(err), Err: err}
	}
	return err
}
