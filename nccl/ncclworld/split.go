package ncclworld

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/gpurank"
	"github.com/weftgo/weft/nccl"
)

// wish is what a rank asks of a Split.
type wish struct{ color, key, member int }

const wishBytes = 16

// Split is collective: the members gather each other's colors and keys, then NCCL splits its communicator. ctx ends the
// wait of this rank.
func (c *conn) Split(ctx context.Context, color, key int) (comm.Conn, int, int, error) {
	label := func() string { return "split" }
	old := c.raw() // before ready, as in Do
	if err := c.ready(label); err != nil {
		return nil, 0, 0, err
	}
	if err := c.agree(nil, "split"); err != nil {
		return nil, 0, 0, c.relabel("split", err)
	}
	call := c.calls.Load()
	wishes, err := c.gather(ctx, old, color, key)
	if err != nil {
		return nil, 0, 0, c.relabel("split", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.w.cfg.Timeout)
	defer cancel()
	ctx, done := c.w.untilDead(ctx)
	defer done()
	start := time.Now()
	raw, err := old.Split(ctx, color, key, nil)
	switch {
	case err != nil && !c.w.alive():
		return nil, 0, 0, c.died("split")
	case err != nil && ctx.Err() != nil:
		return nil, 0, 0, c.ended(ctx, "split", time.Since(start))
	case err != nil:
		return nil, 0, 0, c.broken("split", err)
	case raw == nil:
		return nil, 0, 0, nil
	}
	g, rank := c.together(call, color, wishes)
	sub := g.join(c.r, rank, raw)
	if !c.w.alive() { // it died between the last look and join
		_ = raw.Abort()
	}
	return sub, rank, len(g.members), nil
}

// untilDead is ctx that also ends when the world dies. The caller calls the function when it is done.
func (w *world) untilDead(ctx context.Context) (context.Context, func()) {
	out, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(w.life, func() { cancel(context.Cause(w.life)) })
	return out, func() { stop(); cancel(nil) }
}

// gather exchanges the wishes through NCCL itself, on the rank's own stream.
func (c *conn) gather(ctx context.Context, comms *nccl.Communicator, color, key int) ([]wish, error) {
	n := len(c.g.members)
	mine, err := c.r.pool.Take((n + 1) * wishBytes)
	if err != nil {
		return nil, gpurank.Fail("split", c.r.index, err)
	}
	defer func() {
		if err == nil { // else a kernel may still write there
			_ = c.r.pool.Give(mine.Addr)
		}
	}()
	raw := make([]byte, n*wishBytes)
	binary.LittleEndian.PutUint64(raw, uint64(color))
	binary.LittleEndian.PutUint64(raw[8:], uint64(key))
	all := mine.Addr + wishBytes
	if err = c.r.aside.Upload(mine.Addr, raw[:wishBytes]); err != nil {
		return nil, gpurank.Fail("split", c.r.index, err)
	}
	if err = c.r.streams.Order(c.r.streams.Own); err != nil {
		return nil, gpurank.Fail("split", c.r.index, err)
	}
	b := &c.recipe.Batch
	b.Before, b.After = b.Before[:0], b.After[:0]
	b.Calls = append(b.Calls[:0], nccl.Call{Kind: nccl.AllGather, Src: uint64(mine.Addr), Dst: uint64(all), Count: wishBytes, Type: nccl.Uint8})
	if r := comms.Begin(c.r.streams.Own, b); r != nccl.Success {
		if err = c.slow(&comm.Op{Kind: comm.AllGather}, comms, r); err != nil {
			return nil, c.relabel("split", err)
		}
	}
	if err = c.wait(ctx, c.r.streams.Own); err != nil {
		if e := (*comm.Error)(nil); errors.As(err, &e) {
			e.Op = "split"
		}
		return nil, err
	}
	if err = c.r.aside.Download(raw, all); err != nil {
		return nil, gpurank.Fail("split", c.r.index, err)
	}
	wishes := make([]wish, n)
	for i := range wishes {
		wishes[i] = wish{int(binary.LittleEndian.Uint64(raw[i*wishBytes:])), int(binary.LittleEndian.Uint64(raw[i*wishBytes+8:])), i}
	}
	return wishes, nil
}

// together returns the group of a color, the same for all of its local members, and this rank's place in it.
func (c *conn) together(call uint64, color int, wishes []wish) (*group, int) {
	list := slices.DeleteFunc(slices.Clone(wishes), func(x wish) bool { return x.color != color })
	slices.SortStableFunc(list, func(a, b wish) int { return cmp.Compare(a.key, b.key) })
	members, rank, left := make([]int, len(list)), 0, 0
	for i, x := range list {
		members[i] = c.g.members[x.member]
		if x.member == c.rank {
			rank = i
		}
	}
	key := groupKey{c.g.id, call, color}
	c.w.mu.Lock()
	g := c.w.groups[key]
	c.w.mu.Unlock()
	if g == nil {
		fresh := newGroup(c.w, members)
		c.w.mu.Lock()
		if g = c.w.groups[key]; g == nil {
			g = fresh
			c.w.groups[key] = g
		}
		c.w.mu.Unlock()
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	g.joined++
	if left = g.numLocal - g.joined; left == 0 {
		delete(c.w.groups, key)
	}
	return g, rank
}

// Close makes this rank leave the group. On a living world it is collective: it waits for this rank's work and for NCCL to
// be quiet on all members, until ctx or the world's timeout. Memory goes back to the devices when the last local rank has closed.
func (c *conn) Close(ctx context.Context) error {
	if c.closed.Swap(true) {
		return nil
	}
	limit, cancel := context.WithTimeout(ctx, c.w.cfg.Timeout)
	defer cancel()
	var err error
	list := []*conn{c}
	if c == c.r.main { // groups that were not closed go with the world
		for _, x := range c.r.all() {
			if x != c && !x.closed.Swap(true) {
				list = append(list, x)
			}
		}
	}
	for _, x := range slices.Backward(list) {
		err = errors.Join(err, x.leave(limit, x == c))
		c.r.remove(x)
	}
	if c == c.r.main {
		err = errors.Join(err, c.w.close(ctx))
	}
	return err
}

// leave ends the communicator: gently where all members do the same.
func (c *conn) leave(ctx context.Context, gently bool) error {
	raw := c.raw()
	if !c.w.alive() || c.stale() || !gently || ctx.Err() != nil {
		_ = raw.Abort() // what it says of operations that were ended is no error of Close
		return nil
	}
	ctx, done := c.w.untilDead(ctx)
	defer done()
	err := c.r.streams.Own.Wait(ctx)
	if err == nil {
		err = raw.Finish(ctx)
	}
	if err == nil {
		return nil
	}
	_ = raw.Abort()
	if !c.w.alive() {
		return nil
	}
	return gpurank.Fail("close", c.r.index, fmt.Errorf("not all ranks closed: %w", err))
}
