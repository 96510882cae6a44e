package p2p

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/gpurank"
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
	base := make([]uintptr, len(shared.base))
	for i, addr := range shared.base {
		base[i] = addr + c.r.shift(c.g.members[i])
	}
	return symm.Mapping{Base: base, Release: shared.release}, nil
}

// symmetric is one allocation of all members.
type symmetric struct {
	g    *group
	key  string       // counts, in the store, the members that have released it, then those that have seen that all did
	base []uintptr    // as each member sees its own
	num  atomic.Int32 // members of this process that have not released it
}

// grant is what a member got, as it tells the others.
type grant struct {
	Bytes int
	Addr  uintptr
	Code  comm.Code
	Err   string `json:",omitempty"`
}

func (g *group) allocate(ctx context.Context, call int, values []any) (any, error) {
	g.w.reclaim(ctx)
	s := &symmetric{g: g, key: fmt.Sprintf("%s/%d/released", g.key, call), base: make([]uintptr, len(values))}
	mine := make([][]byte, len(values))
	for i, v := range values {
		if v == nil {
			continue
		}
		got := grant{Bytes: v.(int)}
		var err error
		if s.base[i], err = g.members[i].zeroed(got.Bytes); err != nil {
			got.Code, got.Err = gpurank.CodeOf(err), err.Error()
		}
		got.Addr = s.base[i]
		mine[i] = encode(got)
	}
	all, err := g.exchange(ctx, fmt.Sprint(call, "/alloc"), mine)
	if err == nil {
		err = s.settle(all)
	}
	if err != nil {
		return nil, errors.Join(err, s.free())
	}
	s.num.Store(int32(g.local))
	return s, nil
}

// settle compares what the members asked for and takes what they got.
func (s *symmetric) settle(all [][]byte) error {
	members := s.g.members
	grants := make([]grant, len(all))
	for i, b := range all {
		if err := json.Unmarshal(b, &grants[i]); err != nil {
			return comm.Errorf("symm.alloc", members[i].index, comm.Internal, "%q: %w", b, err)
		}
	}
	for i, got := range grants {
		if got.Bytes != grants[0].Bytes {
			return comm.Errorf("symm.alloc", members[i].index, comm.Invalid, "ranks disagree: rank %d wants %v bytes, rank %d wants %v",
				members[0].index, grants[0].Bytes, members[i].index, got.Bytes)
		}
		if got.Err != "" {
			return comm.Errorf("symm.alloc", members[i].index, got.Code, "%s", got.Err)
		}
		s.base[i] = got.Addr
	}
	return nil
}

// release gives the memory back when the last member has released it. Members of other processes are counted in the store,
// and nobody waits for them: the memory is taken back when a later allocation finds that all have.
func (s *symmetric) release(ctx context.Context) error {
	if s.num.Add(-1) > 0 {
		return nil
	}
	w := s.g.w
	if !s.g.foreign() {
		return s.free()
	}
	if w.numOpen.Load() == 0 || !w.alive() { // all memory goes back
		return nil
	}
	sum, err := w.cfg.Store.Add(ctx, s.key, int64(s.g.local))
	if err != nil {
		return w.died(err)
	}
	if sum == int64(len(s.g.members)) {
		return errors.Join(s.free(), s.seen(ctx))
	}
	w.span.mu.Lock()
	defer w.span.mu.Unlock()
	w.span.retired = append(w.span.retired, s)
	return nil
}

// seen counts this process's members once more, now that all have released; who completes the second count forgets the key,
// which nobody reads any more.
func (s *symmetric) seen(ctx context.Context) error {
	sum, err := s.g.w.cfg.Store.Add(ctx, s.key, int64(s.g.local))
	if err == nil && sum == 2*int64(len(s.g.members)) {
		err = s.g.w.forget(ctx, s.key)
	}
	return s.g.w.died(err)
}

// forget removes a key from a store that can.
func (w *world) forget(ctx context.Context, key string) error {
	if store, ok := w.cfg.Store.(interface {
		Forget(ctx context.Context, key string) error
	}); ok {
		return store.Forget(ctx, key)
	}
	return nil
}

// forgetRetired removes the counts of what was released here; all processes have closed.
func (w *world) forgetRetired(ctx context.Context) (err error) {
	w.span.mu.Lock()
	defer w.span.mu.Unlock()
	for _, s := range w.span.retired {
		err = errors.Join(err, w.forget(ctx, s.key))
	}
	w.span.retired = nil
	return err
}

// reclaim takes back what was released here first and has been released everywhere since.
func (w *world) reclaim(ctx context.Context) {
	if w.span == nil {
		return
	}
	w.span.mu.Lock()
	defer w.span.mu.Unlock()
	kept := w.span.retired[:0]
	for _, s := range w.span.retired {
		sum, err := w.cfg.Store.Add(ctx, s.key, 0)
		if err != nil || sum < int64(len(s.g.members)) || s.free() != nil {
			kept = append(kept, s)
			continue
		}
		_ = s.seen(ctx) // without it a key stays; a dead world is found by what comes next
	}
	w.span.retired = kept
}

// free gives the pieces of this process's members back to their arenas.
func (s *symmetric) free() error {
	var errs []error
	for i, addr := range s.base {
		if r := s.g.members[i]; addr != 0 && !r.away {
			errs = append(errs, r.arena.free(addr))
		}
	}
	s.base = nil
	return errors.Join(errs...)
}

var _ symm.Provider = (*conn)(nil)
