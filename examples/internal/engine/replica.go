package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftgo/weft/examples/internal/batch"
	"github.com/weftgo/weft/examples/internal/kvcache"
	"github.com/weftgo/weft/examples/internal/sampling"
	"github.com/weftgo/weft/examples/internal/scheduler"
	"github.com/weftgo/weft/internal/par"
)

// replica is one data-parallel copy of the attention part: its requests, its blocks and its leader's scratch.
type replica struct {
	engine *Engine
	index  int

	mu    sync.Mutex
	sched *scheduler.Scheduler
	live  map[*Handle]struct{}
	dead  error // why no request is taken any more
	stats ReplicaStats

	requests, tokens atomic.Int64 // Load

	// The leader's own. Steps take turns: when step k+1 is put together, a peer may still run step k; when step k+2 is,
	// all peers have agreed on k+1 and so have left k.
	steps   [2]step
	turn    int
	sampler *sampling.Sampler
	peers   []chan *step // [TP-1], with room for one
}

// step is one step of a replica, as its leader put it together. Peers read batch.
type step struct {
	batch   batch.Batch
	plan    []*scheduler.Sequence // [len(batch.Seqs)]
	results []result              // [len(batch.Seqs)]
}

func newReplica(e *Engine, index int) (*replica, error) {
	newPool := kvcache.New
	if e.cfg.PrefixCaching {
		newPool = kvcache.NewCached
	}
	pool, err := newPool(e.cfg.NumBlocks, e.cfg.BlockSize)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	s, err := scheduler.New(scheduler.Config{MaxBatchedTokens: e.cfg.MaxBatchedTokens, MaxSeqs: e.cfg.MaxSeqs,
		MaxModelLen: e.cfg.MaxModelLen, MaxLogits: e.cfg.MaxLogits, WaitForPrefix: e.cfg.WaitForPrefix}, pool)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	r := &replica{engine: e, index: index, sched: s, live: map[*Handle]struct{}{}, sampler: sampling.New(e.cfg.VocabSize),
		stats: ReplicaStats{StepTokens: newHistogram(stepTokenBounds), Sync: newHistogram(syncBounds)}}
	for range e.cfg.Layout.TP - 1 {
		r.peers = append(r.peers, make(chan *step, 1))
	}
	return r, nil
}

// add queues a request; when ctx ends, so does the request.
func (r *replica) add(ctx context.Context, h *Handle) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead != nil {
		return r.dead
	}
	if err := r.sched.Add(&h.seq); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	r.live[h] = struct{}{}
	r.load(h, 1)
	h.unwatch = context.AfterFunc(ctx, h.Abort)
	return nil
}

func (r *replica) load(h *Handle, sign int64) {
	r.requests.Add(sign)
	r.tokens.Add(sign * int64(h.cost))
}

// end ends a request from outside of the step loop, if it has not ended before.
func (r *replica) end(h *Handle, reason FinishReason, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endLocked(h, reason, err)
}

func (r *replica) endLocked(h *Handle, reason FinishReason, err error) {
	if !r.sched.Remove(&h.seq) {
		return
	}
	delete(r.live, h)
	r.load(h, -1)
	r.stats.count(reason)
	h.unwatch()
	h.finish(reason, err)
	r.engine.release()
}

// fail ends all requests with err, and every later one.
func (r *replica) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead == nil {
		r.dead = err
	}
	for h := range r.live {
		r.endLocked(h, FinishError, r.dead)
	}
}

// schedule puts the next step together and hands it to the peers.
func (r *replica) schedule() *step {
	st := &r.steps[r.turn]
	r.turn ^= 1
	now := time.Now()
	r.mu.Lock()
	st.plan = r.sched.Schedule(&st.batch, st.plan)
	for _, q := range st.plan {
		if h := q.Owner.(*Handle); h.fresh {
			h.fresh = false
			h.began(now)
		}
	}
	r.mu.Unlock()
	for _, p := range r.peers {
		p <- st // there is room: the peer took the step before, or it would not have agreed on it
	}
	return st
}

// await is a peer's schedule: it returns what its leader published.
func (r *replica) await(ctx context.Context, tp int) (*step, error) {
	par.Leave() // who waits here computes nothing
	defer par.Enter()
	select {
	case st := <-r.peers[tp-1]:
		return st, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// synced notes how long the leader took to agree with all others.
func (r *replica) synced(d time.Duration) {
	r.mu.Lock()
	r.stats.Sync.add(d.Seconds())
	r.mu.Unlock()
}

// skip notes a dummy step.
func (r *replica) skip() {
	r.mu.Lock()
	r.stats.DummySteps++
	r.mu.Unlock()
}

// complete turns a step's logits into tokens and finishes what is finished.
func (r *replica) complete(st *step, logits []float32) error {
	if want := st.batch.NumLogits() * r.engine.cfg.VocabSize; len(logits) != want {
		return fmt.Errorf("engine: forward of %s returned %d logits; %d rows of a vocabulary of %d are %d", st.batch.Name(),
			len(logits), st.batch.NumLogits(), r.engine.cfg.VocabSize, want)
	}
	// Only the leader appends to sequences, so reading them here needs no lock, and nobody waits while it samples.
	st.results = slices.Grow(st.results[:0], len(st.plan))[:len(st.plan)]
	for i, q := range st.plan {
		rows := logits[:st.batch.Seqs[i].NumLogits*r.engine.cfg.VocabSize]
		logits = logits[len(rows):]
		r.read(&st.results[i], q, &st.batch.Seqs[i], rows)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, q := range st.plan {
		r.commit(q, len(st.batch.Seqs[i].Tokens), &st.results[i])
	}
	_, ctxTokens, _, genTokens := st.batch.Count()
	r.stats.Steps++
	r.stats.StepTokens.add(float64(ctxTokens + genTokens))
	r.stats.ContextTokens += int64(ctxTokens)
	r.stats.GenerationTokens += int64(genTokens)
	return nil
}

// commit applies one sequence's result, unless the request has ended meanwhile.
func (r *replica) commit(q *scheduler.Sequence, numTokens int, res *result) {
	if !q.Alive() {
		return
	}
	h := q.Owner.(*Handle)
	if res.err != nil {
		r.endLocked(h, FinishError, res.err)
		return
	}
	r.sched.Advance(q, numTokens)
	if res.sampled {
		r.sched.Append(q, res.token)
	}
	var reason FinishReason
	switch {
	case res.sampled && slices.Contains(h.stops, res.token):
		reason = FinishStop
	case q.NumGenerated() >= q.MaxTokens && (res.sampled || q.Complete()), len(q.Tokens) >= r.engine.cfg.MaxModelLen && res.sampled:
		reason = FinishLength
	}
	h.add(res, reason)
	if reason != "" {
		r.endLocked(h, reason, nil)
	}
}
