package turnstile

import (
	"context"
	"sync"
	"time"
)

// Turnstile opens when all have come. Each goroutine calls it equally often.
type Turnstile struct {
	mu      sync.Mutex
	arrived int
	num     int
	open    chan struct{} // of this round
}

// New makes a Turnstile for num goroutines.
func New(num int) *Turnstile { return &Turnstile{num: num, open: make(chan struct{})} }

// Wait returns when all have called it, or with the cause when ctx ends before. After that it cannot be used again.
func (t *Turnstile) Wait(ctx context.Context) error {
	t.mu.Lock()
	open := t.open
	if t.arrived++; t.arrived == t.num {
		t.arrived, t.open = 0, make(chan struct{})
		close(open)
	}
	t.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// patience is how long Pass waits for a goroutine that failed.
const patience = 30 * time.Second

// Pass is Wait for tests: it goes on after half a minute, when another goroutine has failed and says why itself.
func (t *Turnstile) Pass() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = t.Wait(ctx)
}
