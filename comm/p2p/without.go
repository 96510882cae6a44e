package p2p

import (
	"context"
	"fmt"
	"slices"

	"github.com/weftgo/weft/comm"
)

// Without returns the configuration of the world of the ranks that are left when those in missing are gone: without their devices,
// and numbered anew in their order. In a world that spans processes each of them calls it with the same ranks and gives the
// result a Store that lives: one that lost a process does not serve any more.
func (cfg Config) Without(missing ...int) (Config, error) {
	if cfg.Size == 0 {
		cfg.Size = cfg.FirstRank + len(cfg.Devices)
	}
	var devices []comm.Device
	first, size := cfg.FirstRank, cfg.Size
	for i, r := range missing {
		if r < 0 || r >= cfg.Size || slices.Contains(missing[:i], r) {
			return Config{}, fmt.Errorf("rank %d is named twice or not in [0, %d)", r, cfg.Size)
		}
		size--
		if r < cfg.FirstRank {
			first--
		}
	}
	for i, d := range cfg.Devices {
		if !slices.Contains(missing, cfg.FirstRank+i) {
			devices = append(devices, d)
		}
	}
	if len(devices) == 0 {
		return Config{}, fmt.Errorf("none of ranks %d to %d is left here", cfg.FirstRank, cfg.FirstRank+len(cfg.Devices)-1)
	}
	cfg.Devices, cfg.FirstRank, cfg.Size = devices, first, size
	return cfg, nil
}

// Without gives the dead world's memory back and opens one of the ranks that are left. A GPU that no survivor uses may be gone:
// nothing is asked of it. A failure that ends a GPU's context may have ended those of its peers too; then opening fails with
// what the driver says, and only a new process helps.
func (c *conn) Without(ctx context.Context, missing, stuck []int) (*comm.World, error) {
	w := c.g.w
	next, err := w.cfg.Without(missing...)
	if err != nil {
		return nil, comm.Errorf("open p2p", c.r.index, comm.Invalid, "%w", err)
	}
	if w.span != nil {
		return nil, comm.Errorf("open p2p", c.r.index, comm.Unavailable,
			"the world spans processes, and its store may have gone with one; Close it and Open Config.Without(ranks) with a new Store in each process that is left")
	}
	if w.leaveBehind(missing, stuck) || w.owes {
		w.owes = true // until it is done: this may be called again
		if err := w.end(ctx); err != nil {
			return nil, err // memory that kernels may still use is not free
		}
		w.owes = false
	}
	return Open(ctx, next)
}

// leaveBehind closes what can be closed, and reports whether anything was open. It marks what the end of the world leaves alone: GPUs
// without survivors, for good, and what ranks have that are stuck in a call: until they Close, when they are not any more.
func (w *world) leaveBehind(missing, stuck []int) (open bool) {
	for _, g := range w.gpus {
		g.lost = true
	}
	for _, r := range w.local {
		if !slices.Contains(missing, r.index) {
			r.gpu.lost = false
		}
	}
	numStuck := int32(0)
	for _, r := range w.local {
		isStuck := slices.Contains(stuck, r.index) && !r.main.closed.Load()
		r.lost.Store(r.gpu.lost || isStuck)
		if isStuck && !r.gpu.lost {
			numStuck++
			open = true
		} else if !r.main.closed.Swap(true) {
			open = true
		}
	}
	w.numOpen.Store(numStuck)
	return open
}

var _ comm.Reformer = (*conn)(nil)
