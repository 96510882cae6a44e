package staged

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// conn is one rank's end of a group.
type conn struct {
	in         comm.Conn   // the driver's
	memory     comm.Memory // its power
	world      int         // this rank in the world, for errors
	rank, size int         // in the group
	limit      int         // bytes of device memory beyond which calls are cut
	closed     atomic.Bool
	left       atomic.Bool // of main: Without left the rank behind; its workspace goes with its device's
	bond       *bond       // of main: with the world below
	main       *conn       // of the world
	groups     []*conn     // of main: all that Split made; the rank's goroutine alone uses it

	work comm.Buffer // u8 [1, n] on the device; grows
	host []byte      // what is copied to and from it; grows
	one  [1]comm.Part
	pass pass
}

func newConn(in comm.Conn, world, rank, size, limit int) (*conn, error) {
	memory, ok := in.(comm.Memory)
	if !ok || in.Device().Kind == comm.CPU {
		return nil, comm.Errorf("open staged", world, comm.Invalid, "driver %T on %v has no device memory to stage in", in, in.Device())
	}
	c := &conn{in: in, memory: memory, world: world, rank: rank, size: size, limit: limit}
	c.main = c
	return c, nil
}

// Device returns cpu:0.
func (c *conn) Device() comm.Device { return comm.Device{} }

// Wait returns at once: every operation is complete when its call returns.
func (c *conn) Wait(context.Context, comm.Stream) error { return nil }

// Abort ends the whole world.
func (c *conn) Abort(cause error) { c.in.Abort(cause) }

// Split makes a group with a workspace of its own.
func (c *conn) Split(ctx context.Context, color, key int) (comm.Conn, int, int, error) {
	in, rank, size, err := c.in.Split(ctx, color, key)
	if err != nil || in == nil {
		return nil, 0, 0, err
	}
	sub, err := newConn(in, c.world, rank, size, c.limit)
	if err != nil {
		return nil, 0, 0, errors.Join(err, in.Close(ctx))
	}
	sub.main = c.main
	c.main.groups = append(slices.DeleteFunc(c.main.groups, func(g *conn) bool { return g.closed.Load() }), sub)
	return sub, rank, size, nil
}

// Close gives the workspace back and closes the driver's end. Nothing of this rank runs on the device: each call has waited.
// The world's Close does it for groups that were not closed too.
func (c *conn) Close(ctx context.Context) error {
	if c.closed.Swap(true) {
		return nil
	}
	var err error
	if !c.left.Load() {
		err = c.release()
	}
	for _, g := range c.groups {
		if !g.closed.Swap(true) && !c.left.Load() {
			err = errors.Join(err, g.release())
		}
	}
	err = errors.Join(err, c.in.Close(ctx))
	if c.bond != nil {
		c.bond.left()
	}
	return err
}

func (c *conn) release() error {
	err := c.memory.Free(c.work)
	c.work, c.host = comm.Buffer{}, nil
	return err
}

// room makes the workspace and its image on the host at least that large.
func (c *conn) room(bytes int) error {
	if bytes <= len(c.host) {
		return nil
	}
	size := 4 << 10
	for size < bytes {
		size *= 2
	}
	if size > c.limit {
		size = max(bytes, c.limit)
	}
	if err := c.release(); err != nil {
		return err
	}
	work, err := c.memory.Alloc(dtype.U8, 1, size)
	if err != nil {
		return err
	}
	c.work, c.host = work, make([]byte, size)
	return nil
}
