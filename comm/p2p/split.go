package p2p

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/kernels"
)

// wish is what a rank asks of a Split.
type wish struct{ color, key int }

// Split is collective: the kernels of all members meet, then their goroutines. ctx ends the wait of this rank.
func (c *conn) Split(ctx context.Context, color, key int) (comm.Conn, int, int, error) {
	text := fmt.Sprintf("split color %d key %d", color, key)
	got, err := c.assemble(ctx, "split", text, wish{color, key}, c.g.divide)
	if err != nil {
		return nil, 0, 0, err
	}
	sub := got.([]*conn)[c.rank]
	if sub == nil {
		return nil, 0, 0, nil
	}
	return sub, sub.rank, len(sub.g.members), nil
}

// divide makes the new groups and returns every member's Conn.
func (g *group) divide(values []any) (any, error) {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	wishOf := func(i int) wish { return values[i].(wish) }
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(wishOf(i).key, wishOf(j).key) })
	byColor := map[int][]int{}
	for _, i := range order {
		if color := wishOf(i).color; color >= 0 {
			byColor[color] = append(byColor[color], i)
		}
	}
	conns := make([]*conn, len(values))
	for _, list := range byColor {
		members := make([]*rank, len(list))
		for k, i := range list {
			members[k] = g.members[i]
		}
		sub := newGroup(g.w, members)
		for k := range members {
			c, err := sub.join(k)
			if err != nil {
				return nil, comm.Errorf("split", members[k].index, comm.Internal, "%w", err)
			}
			conns[list[k]] = c
		}
		for _, c := range sub.conns {
			if err := c.connect(); err != nil {
				return nil, comm.Errorf("split", c.r.index, comm.Internal, "%w", err)
			}
		}
	}
	return conns, nil
}

// Close makes this rank leave the group: ranks that wait for it, now or later, get Invalid, naming it. It waits for its own
// work on its own stream, not for other ranks; the caller has waited for the streams that it gave. Memory goes back to the devices when the last rank of the world has closed: until then peers
// may still write to it.
func (c *conn) Close(ctx context.Context) error {
	if c.closed.Swap(true) {
		return nil
	}
	w := c.g.w
	var errs []error
	if w.alive() {
		errs = append(errs, c.leave())
	}
	if c == c.r.main {
		errs = append(errs, w.close(ctx))
	}
	return errors.Join(errs...)
}

// leave tells the peers, after this rank's earlier work.
func (c *conn) leave() error {
	err := c.r.order(c.r.own)
	if err == nil {
		err = c.r.gpu.kernels.Leave(c.r.own, &kernels.Args{Ctl: uint64(c.ctl)})
	}
	if err != nil {
		return &comm.Error{Op: "close", Rank: c.r.index, Peer: comm.NoPeer, Code: codeOf(err), Err: err}
	}
	return nil
}
