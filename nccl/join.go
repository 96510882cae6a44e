package nccl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/nccl/internal/calls"
)

// strays are the communicators of Joins that ended before the library had written their handles. It may still write there, so their
// slots stay, and what came is aborted by a later Join.
var strays struct {
	mu   sync.Mutex
	list []*Communicator
}

// Join makes the communicator of a new rank that others Grow for. When ctx ends first, the library may make one all the same, on which
// the others count: the next Join aborts it, and so does AbortStrays.
func Join(ctx context.Context, dev *cuda.Device, size, rank int, id ID, o Options) (*Communicator, error) {
	if err := needs(calls.Grow); err != nil {
		return nil, err
	}
	AbortStrays()
	c := newCommunicator(dev, o.Blocking)
	l := o.layout()
	name := fmt.Sprintf("CommGrow: join as rank %d of %d", rank, size)
	r := run(dev.Context(), calls.Grow, growWords(0, size, rank, c.slot, &id, l.words()), c.msg)
	err := check(r, name, c.msg)
	if err == nil && r == InProgress {
		err = poll(ctx, func() (bool, error) { return c.Handle() != 0, nil })
		if err != nil && c.Handle() == 0 {
			strays.mu.Lock()
			defer strays.mu.Unlock()
			strays.list = append(strays.list, c)
			return nil, err
		}
	}
	if err == nil {
		err = c.Ready(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Abort())
	}
	return c, nil
}

// AbortStrays ends communicators that came after their Join had given up, and returns how many may still come.
func AbortStrays() (left int) {
	strays.mu.Lock()
	defer strays.mu.Unlock()
	strays.list = slices.DeleteFunc(strays.list, func(c *Communicator) bool {
		if c.Handle() == 0 {
			return false
		}
		_ = c.Abort() // nobody uses it
		return true
	})
	return len(strays.list)
}
