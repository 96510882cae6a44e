package staged

import (
	"context"
	"errors"
	"slices"

	"github.com/weftgo/weft/comm"
)

// Without gives up the dead world and stages that of the ranks below that are left.
func (c *conn) Without(ctx context.Context, missing, stuck []int) (*comm.World, error) {
	below, ok := c.in.(comm.Reformer)
	if !ok {
		return nil, comm.Errorf("open staged", c.world, comm.Unavailable, "the driver below, %T, opens no world of the ranks that are left", c.in)
	}
	var err error
	for _, each := range c.bond.conns {
		if slices.Contains(stuck, each.world) { // its own Close is to come, and closes the driver's end
			each.left.Store(true)
			continue
		}
		if each.closed.Swap(true) {
			continue
		}
		if !slices.Contains(missing, each.world) {
			err = errors.Join(err, each.release()) // a missing rank's goes with its device's, or stays
			for _, g := range each.groups {
				if !g.closed.Swap(true) {
					err = errors.Join(err, g.release())
				}
			}
		}
		c.bond.left()
	}
	if err != nil {
		return nil, err
	}
	next, err := below.Without(ctx, missing, stuck)
	if err != nil {
		return nil, err
	}
	host, err := Open(next, Config{Workspace: c.limit})
	if err != nil {
		return nil, errors.Join(err, next.Close(ctx))
	}
	return host, nil
}

var _ comm.Reformer = (*conn)(nil)
