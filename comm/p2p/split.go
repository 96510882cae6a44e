package p2p

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/gpurank"
	"github.com/weftgo/weft/internal/kernels"
)

// wish is what a rank asks of a Split.
type wish struct{ Color, Key int }

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
func (g *group) divide(ctx context.Context, call int, values []any) (any, error) {
	mine := make([][]byte, len(values))
	for i, v := range values {
		if v != nil {
			mine[i] = encode(v)
		}
	}
	all, err := g.exchange(ctx, fmt.Sprint(call, "/split"), mine)
	if err != nil {
		return nil, err
	}
	wishes := make([]wish, len(all))
	for i, b := range all {
		if err := json.Unmarshal(b, &wishes[i]); err != nil {
			return nil, comm.Errorf("split", g.members[i].index, comm.Internal, "%q: %w", b, err)
		}
	}
	conns := make([]*conn, len(wishes))
	for color, list := range byColor(wishes) {
		members := make([]*rank, len(list))
		here := false
		for k, i := range list {
			members[k] = g.members[i]
			here = here || !members[k].away
		}
		if !here {
			continue
		}
		sub := newGroup(g.w, members)
		sub.key = fmt.Sprintf("%s/%d.%d", g.key, call, color)
		for k, i := range list {
			conns[i] = sub.conns[k]
		}
	}
	return conns, g.connect(ctx, fmt.Sprint(call, "/tables"), conns)
}

// byColor lists, for each color from 0 on, who wished it, by key and then by place.
func byColor(wishes []wish) map[int][]int {
	order := make([]int, len(wishes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(wishes[i].Key, wishes[j].Key) })
	lists := map[int][]int{}
	for _, i := range order {
		if color := wishes[i].Color; color >= 0 {
			lists[color] = append(lists[color], i)
		}
	}
	return lists
}

// Close makes this rank leave the group: ranks that wait for it, now or later, get Invalid, naming it. It waits for its own
// work on its own stream, not for other ranks; the caller has waited for the streams that it gave. Memory goes back to the
// devices when the last rank of the world has closed: until then peers may still write to it.
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
		c.r.lost.Store(false) // it is not stuck any more
		errs = append(errs, w.close(ctx))
	}
	return errors.Join(errs...)
}

// leave tells the peers, after this rank's earlier work.
func (c *conn) leave() error {
	err := c.r.streams.Order(c.r.streams.Own)
	if err == nil {
		err = c.r.gpu.kernels.Leave(c.r.streams.Own, &kernels.Args{Ctl: uint64(c.ctl)})
	}
	if err != nil {
		return &comm.Error{Op: "close", Rank: c.r.index, Peer: comm.NoPeer, Code: gpurank.CodeOf(err), Err: err}
	}
	return nil
}
