package lockstep

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weftgo/weft/internal/par"
)

// Bell counts wake-ups of ranks that share a process. The zero Bell has generation 0 and is ready. Any goroutine may use it;
// it must not be copied.
type Bell struct {
	generation atomic.Uint64
	mu         sync.Mutex
	next       chan struct{} // closed by the next Ring; nil while nobody waits
}

// Generation returns how often the bell was rung. A leader reads it before it looks for work.
func (b *Bell) Generation() uint64 { return b.generation.Load() }

// Ring wakes everyone who waits for a generation up to the new one. Who brings work calls it after the work can be seen.
func (b *Bell) Ring() {
	b.mu.Lock()
	b.generation.Add(1)
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
	b.mu.Unlock()
}

// Wait returns when the generation is greater than after, or with the cause when ctx ends.
func (b *Bell) Wait(ctx context.Context, after uint64) error {
	par.Leave() // who waits here computes nothing
	defer par.Enter()
	for {
		b.mu.Lock()
		if b.generation.Load() > after {
			b.mu.Unlock()
			return nil
		}
		if b.next == nil {
			b.next = make(chan struct{})
		}
		next := b.next
		b.mu.Unlock()
		select {
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
