package rendezvous

import (
	"context"
	"strconv"
)

// Group is what processes of a job that agree step by step need, under one name: a Gather between all of them, and a sleep from
// which the first wakes all. It implements lockstep.Processes. One goroutine uses each of Gather, Sleep and Wake at a time.
type Group struct {
	c    *Client
	name string
}

// Group makes this process's part of a group. It sends nothing. All processes of the job belong to it.
func (c *Client) Group(name string) *Group { return &Group{c: c, name: name} }

// Rank returns this process's number.
func (g *Group) Rank() int { return g.c.job.Rank }

// Size returns the number of processes.
func (g *Group) Size() int { return g.c.job.Size }

// Gather is collective: every process gives mine and gets everyone's, in order of processes. It is one round trip to the store.
func (g *Group) Gather(ctx context.Context, mine []byte) ([][]byte, error) {
	return Exchange(ctx, g.c, g.name, g.c.job.Rank, g.c.job.Size, mine)
}

func (g *Group) wake(n uint64) string { return g.name + "/wake/" + strconv.FormatUint(n, 10) }

// Sleep waits until some process has called Wake(n).
func (g *Group) Sleep(ctx context.Context, n uint64) error {
	_, err := g.c.Get(ctx, g.wake(n))
	return err
}

// Wake ends Sleep(n) of all processes. All must have agreed on something since the sleep before n.
func (g *Group) Wake(ctx context.Context, n uint64) error {
	if err := g.c.Set(ctx, g.wake(n), nil); err != nil || n == 0 {
		return err
	}
	return g.c.Forget(ctx, g.wake(n-1)) // nobody sleeps there any more
}
