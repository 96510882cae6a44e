package p2p

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/symm"
)

// AllocSymmetric is collective: bytes of zeroed memory on every member's device, which all of them address. It comes from
// the members' arenas, which every GPU of the world maps.
func (c *conn) AllocSymmetric(ctx context.Context, bytes int) (symm.Mapping, error) {
	if bytes <= 0 {
		return symm.Mapping{}, comm.Errorf("symm.alloc", c.r.index, comm.Invalid, "%d bytes", bytes)
	}
	got, err := c.assemble(ctx, "symm.alloc", fmt.Sprintf("symm.alloc of %d bytes", bytes), bytes, c.g.allocate)
	if err != nil {
		return symm.Mapping{}, err
	}
	shared := got.(*symmetric)
	return symm.Mapping{Base: shared.base, Release: func(context.Context) error { return shared.release() }}, nil
}

// symmetric is one allocation of all members.
type symmetric struct {
	g    *group
	base []uintptr
	num  atomic.Int32 // members that have not released it
}

func (g *group) allocate(values []any) (any, error) {
	for i, v := range values {
		if v != values[0] {
			return nil, comm.Errorf("symm.alloc", g.members[i].index, comm.Invalid, "ranks disagree: rank %d wants %v bytes, rank %d wants %v",
				g.members[0].index, values[0], g.members[i].index, v)
		}
	}
	s := &symmetric{g: g}
	for _, r := range g.members {
		addr, err := r.zeroed(values[0].(int))
		if err != nil {
			return nil, &comm.Error{Op: "symm.alloc", Rank: r.index, Peer: comm.NoPeer, Code: codeOf(err), Err: errors.Join(err, s.free())}
		}
		s.base = append(s.base, addr)
	}
	s.num.Store(int32(len(s.base)))
	return s, nil
}

// release gives the memory back when the last member has released it.
func (s *symmetric) release() error {
	if s.num.Add(-1) > 0 {
		return nil
	}
	return s.free()
}

func (s *symmetric) free() error {
	var errs []error
	for i, addr := range s.base {
		errs = append(errs, s.g.members[i].arena.free(addr))
	}
	s.base = nil
	return errors.Join(errs...)
}

var _ symm.Provider = (*conn)(nil)
