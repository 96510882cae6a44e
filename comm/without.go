package comm

import (
	"context"
	"fmt"
	"slices"
)

// Reformer is an optional power of a Conn, for World.Without.
type Reformer interface {
	// Without gives up the Conn's world, which is dead, and opens one of the ranks that are not missing. missing is sorted and
	// leaves at least one rank here. Of the missing, those in stuck have goroutines that may still be in a call: what only
	// they use is left alone.
	Without(ctx context.Context, missing, stuck []int) (*World, error)
}

// Without opens a world of the ranks that are left when some are gone, and gives up w. The survivors are numbered anew, in their
// order: rank i of the new world was rank routing.Survivors(w.Size(), missing...)[i]; Placement.Without says which experts they
// have. [Blamed] finds the rank that an error of Run is about.
//
//	err := w.Run(ctx, serve)                       // rank 2 died; all others got errors
//	w, err = w.Without(ctx, comm.Blamed(err))      // ranks 0, 1, 3 go on as 0, 1, 2
//	err = w.Run(ctx, serve)
//
// w must be dead: Abort ends one that is not. One goroutine calls it, outside of Run, after what was made on w (exchangers,
// groups, memory) has been closed: the survivors' memory of w goes back first. It waits, until ctx ends, for the functions that
// Run called on survivors; those of missing ranks may never return, and must not use w any more. A device that only missing
// ranks used is not touched: what they held there stays taken until the process ends. Tracers are to be set anew.
//
// Errors name the missing ranks, by their numbers in w: Invalid when w lives or the ranks make no sense, Timeout when a survivor
// has not left Run, Unavailable when the driver cannot do it; and what opening a world may return.
func (w *World) Without(ctx context.Context, missing ...int) (*World, error) {
	missing = slices.Sorted(slices.Values(missing))
	op := fmt.Sprintf("world without ranks %v", missing)
	fail := func(code Code, format string, args ...any) (*World, error) {
		rank := 0
		if len(w.local) > 0 {
			rank = w.local[0].rank
		}
		return nil, Errorf(op, rank, code, format, args...)
	}
	if len(w.local) == 0 || w.Err() == nil {
		return fail(Invalid, "the world lives; Abort it first if these ranks are to be left behind")
	}
	size := w.Size()
	for i, r := range missing {
		if r < 0 || r >= size || i > 0 && r == missing[i-1] {
			return fail(Invalid, "rank %d is named twice or not in [0, %d)", r, size)
		}
	}
	var here *Comm
	var stuck []int
	for i, c := range w.local {
		gone := slices.Contains(missing, c.rank)
		if !gone && here == nil {
			here = c
		}
		if left := w.left(ctx, i, gone); !left && gone {
			stuck = append(stuck, c.rank)
		} else if !left {
			return nil, &Error{Op: op, Rank: w.local[0].rank, Peer: c.rank, Code: Timeout,
				Err: fmt.Errorf("rank %d has not returned from the function that Run called, and is no missing one: %w", c.rank, context.Cause(ctx))}
		}
	}
	switch {
	case len(missing) == 0:
		return fail(Invalid, "no rank is named; open a new world")
	case here == nil:
		return fail(Invalid, "no rank of this process is left")
	}
	r, ok := here.conn.(Reformer)
	if !ok {
		return fail(Unavailable, "driver %T cannot; Close this world and open one of the ranks that are left", here.conn)
	}
	if w.reformed.Swap(true) {
		return fail(Invalid, "this world was given up by an earlier Without")
	}
	next, err := r.Without(ctx, missing, stuck)
	if err != nil {
		w.reformed.Store(false) // it may be tried again
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	return next, nil
}

// left reports whether the function that Run called for local rank i has returned. It waits for it, until ctx ends, unless the
// rank is gone.
func (w *World) left(ctx context.Context, i int, gone bool) bool {
	w.mu.Lock()
	if len(w.inside) == 0 {
		w.mu.Unlock()
		return true
	}
	done := w.inside[i]
	w.mu.Unlock()
	select {
	case <-done:
		return true
	default:
	}
	if gone {
		return false
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
