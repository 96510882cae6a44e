package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/lockstep"
)

// Engine runs requests on the ranks of a world. Any goroutine may call its methods.
type Engine struct {
	cfg      Config
	world    *comm.World
	models   []Model // [ranks]
	replicas []*replica
	work     []progress // [ranks]

	bell     lockstep.Bell
	stopping atomic.Bool
	cancel   context.CancelCauseFunc // ends the rank loops at once
	finished chan struct{}           // closed when the engine's goroutines have ended

	mu      sync.Mutex // may be taken while a replica's is held, not the other way
	nextID  uint64
	pending int           // requests between Submit and their end
	idle    chan struct{} // closed when pending is 0 and closed is true
	closed  bool
	err     error // why the engine died
	loads   []Load
	sent    *affinity // nil without PrefixCaching

	global globalStats
}

// New starts an engine: one goroutine for each rank of world, in which it calls models[rank]. Close ends them. The world
// stays the caller's, but nobody else may use its Comms meanwhile. For collectives in the trace, the caller
// sets the Comms' tracers before it builds the models.
func New(world *comm.World, models []Model, cfg Config) (*Engine, error) {
	if err := cfg.check(world, len(models)); err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, world: world, models: models, work: make([]progress, world.Size()),
		finished: make(chan struct{}), idle: make(chan struct{}), loads: make([]Load, cfg.Layout.DP)}
	e.global.lastTokens = make([]int, world.Size())
	if cfg.PrefixCaching {
		e.sent = newAffinity(cfg.Layout.DP, cfg.NumBlocks, cfg.BlockSize)
	}
	for i := range cfg.Layout.DP {
		r, err := newReplica(e, i)
		if err != nil {
			return nil, err
		}
		e.replicas = append(e.replicas, r)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	e.cancel = cancel
	ended := make(chan error, 1)
	go func() { ended <- world.Run(ctx, e.rank) }()
	go e.watch(ended)
	return e, nil
}

// Submit queues a request. When ctx ends, so does the request, with FinishAbort. Errors wrap ErrInvalid (the request cannot
// run, with the numbers), ErrClosed or ErrDead.
func (e *Engine) Submit(ctx context.Context, req Request) (*Handle, error) {
	if err := req.validate(&e.cfg); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	seed := rand.Uint64()
	if s := req.Sampling.Seed; s != nil {
		seed = uint64(*s)
	}
	id, r, cost, err := e.admit(&req)
	if err != nil {
		return nil, err
	}
	h := newHandle(r, id, req, req.stops(e.cfg.EOS), seed, e.cfg.MaxModelLen)
	h.cost = cost
	if err := r.add(ctx, h); err != nil {
		e.release()
		return nil, err
	}
	e.bell.Ring()
	return h, nil
}

// admit counts a request and chooses its replica, which then has cost more tokens to do.
func (e *Engine) admit(req *Request) (id uint64, r *replica, cost int, err error) {
	cost = len(req.IDs) + min(req.MaxTokens, max(e.cfg.MaxModelLen-len(req.IDs), 0))
	var chain []uint64
	if e.sent != nil {
		chain = e.sent.chain(req)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.err != nil:
		return 0, nil, 0, e.err
	case e.closed:
		return 0, nil, 0, ErrClosed
	}
	for i, r := range e.replicas {
		e.loads[i] = Load{Requests: int(r.requests.Load()), Tokens: int(r.tokens.Load())}
		if e.sent != nil && !req.Echo { // of a scored prompt every token runs
			e.loads[i].Expected = e.sent.expected(i, chain)
		}
	}
	i := e.cfg.Policy(e.loads, cost)
	if i < 0 || i >= len(e.replicas) {
		return 0, nil, 0, fmt.Errorf("engine: the policy chose replica %d of %d", i, len(e.replicas))
	}
	if e.sent != nil {
		e.sent.add(i, chain)
	}
	e.pending++
	e.nextID++
	return e.nextID, e.replicas[i], cost - e.loads[i].Expected, nil
}

// release uncounts a request.
func (e *Engine) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pending--
	if e.closed && e.pending == 0 {
		close(e.idle)
	}
}

// Close takes no more requests, waits for those under way, and ends the engine's goroutines. When ctx ends first it gives the
// world up: what is under way ends with an error, and Close returns without waiting for ranks that may be stuck; Done
// tells when they are gone. It returns nil after an orderly end.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		if e.pending == 0 {
			close(e.idle)
		}
	}
	e.mu.Unlock()
	select {
	case <-e.idle:
		e.stopping.Store(true)
		e.bell.Ring()
	case <-e.world.Done():
		return e.died(e.world.Err())
	case <-ctx.Done():
	}
	select {
	case <-e.finished:
		return e.Err()
	case <-e.world.Done():
		return e.died(e.world.Err())
	case <-ctx.Done():
		err := fmt.Errorf("%w before all requests had ended: %w", ErrClosed, context.Cause(ctx))
		err = e.fail(err)
		e.world.Abort(err)
		e.cancel(err)
		return err
	}
}

// Done is closed when all goroutines of the engine have ended.
func (e *Engine) Done() <-chan struct{} { return e.finished }

// Err returns why the engine died: nil while it lives and after an orderly Close.
func (e *Engine) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// died is fail for a world's error.
func (e *Engine) died(cause error) error {
	return e.fail(fmt.Errorf("%w: %w", ErrDead, cause))
}

// fail ends every request with the first error it was given, and returns that.
func (e *Engine) fail(err error) error {
	e.mu.Lock()
	if e.err == nil {
		e.err = err
	}
	err = e.err
	e.mu.Unlock()
	for _, r := range e.replicas {
		r.fail(err)
	}
	return err
}
