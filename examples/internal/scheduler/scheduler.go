package scheduler

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weftgo/weft/examples/internal/batch"
	"github.com/weftgo/weft/examples/internal/kvcache"
)

// Config bounds a step. It does not change after New.
type Config struct {
	MaxBatchedTokens int // tokens of one step
	MaxSeqs          int // sequences that run at once
	MaxModelLen      int // tokens of one sequence, prompt and output together
	MaxLogits        int // rows of logits of one step; 0 means no bound beyond MaxBatchedTokens
	// WaitForPrefix holds a prompt back for the step in which an older one computes at least half of what it has left, instead
	// of computing it twice. It does nothing unless the pool caches prefixes.
	WaitForPrefix bool
}

// Validate reports bounds under which nothing could run.
func (c Config) Validate() error {
	if c.MaxBatchedTokens < 1 || c.MaxSeqs < 1 || c.MaxModelLen < 1 || c.MaxLogits < 0 {
		return fmt.Errorf("scheduler: max batched tokens %d, max seqs %d, max model len %d must be at least 1, max logits %d at least 0",
			c.MaxBatchedTokens, c.MaxSeqs, c.MaxModelLen, c.MaxLogits)
	}
	return nil
}

// ErrTooLong is wrapped by Add's error when a sequence can never run.
var ErrTooLong = errors.New("too long")

// Scheduler decides what one replica runs. It is plain and synchronous; one goroutine uses it at a time.
type Scheduler struct {
	cfg     Config
	pool    *kvcache.Pool
	waiting []*Sequence // oldest first, all younger than those in running
	running []*Sequence // oldest first; they hold blocks for all their tokens

	preemptions int64
	deferred    int // sequences that sat the last step out for another's sake
	reuse       Reuse
	matched     []int32             // scratch of match
	promised    map[uint64]struct{} // hashes of blocks that the step being put together completes
}

// New returns a scheduler that takes blocks from pool, which nobody else uses meanwhile.
func New(cfg Config, pool *kvcache.Pool) (*Scheduler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.MaxLogits == 0 {
		cfg.MaxLogits = cfg.MaxBatchedTokens
	}
	cfg.WaitForPrefix = cfg.WaitForPrefix && pool.CachesPrefixes()
	return &Scheduler{cfg: cfg, pool: pool, promised: map[uint64]struct{}{}}, nil
}

// Waiting returns the number of sequences that wait.
func (s *Scheduler) Waiting() int { return len(s.waiting) }

// Running returns the number of sequences that hold blocks.
func (s *Scheduler) Running() int { return len(s.running) }

// Deferred returns how many of the running sequences sat the last step out because an older one computes what they begin with.
func (s *Scheduler) Deferred() int { return min(s.deferred, len(s.running)) }

// Preemptions returns how often a sequence had to give its blocks back.
func (s *Scheduler) Preemptions() int64 { return s.preemptions }

// Pool returns where the blocks come from.
func (s *Scheduler) Pool() *kvcache.Pool { return s.pool }

// Add queues a new sequence behind all others. One that could never run, however empty the cache, is refused with the
// numbers.
func (s *Scheduler) Add(q *Sequence) error {
	if q.state != isNew || len(q.Tokens) == 0 || q.MaxTokens < 0 {
		return fmt.Errorf("scheduler: sequence %d: %d prompt tokens, max tokens %d, %v: it must be new, with a prompt",
			q.ID, len(q.Tokens), q.MaxTokens, q.state)
	}
	q.NumPrompt = len(q.Tokens)
	if room := s.cfg.MaxModelLen - q.NumPrompt; room < min(q.MaxTokens, 1) {
		return fmt.Errorf("%w: the prompt has %d tokens, and prompt and output together may have %d", ErrTooLong, q.NumPrompt, s.cfg.MaxModelLen)
	}
	// The last token is chosen but never run, so it needs no place.
	most := q.NumPrompt + min(max(q.MaxTokens-1, 0), s.cfg.MaxModelLen-q.NumPrompt) // MaxTokens may be the largest int
	if need := s.pool.BlocksFor(most); need > s.pool.Total() {
		return fmt.Errorf("%w: a prompt of %d tokens and up to %d more need %d blocks of %d; the key/value cache has %d", ErrTooLong,
			q.NumPrompt, min(q.MaxTokens, s.cfg.MaxModelLen-q.NumPrompt), need, s.pool.BlockSize(), s.pool.Total())
	}
	q.state = isWaiting
	s.waiting = append(s.waiting, q)
	return nil
}

// Remove ends a sequence, finished or not, and frees its blocks at once. It reports whether the sequence was still there.
// It may be called while a step that holds the sequence runs: the blocks go to another sequence in the next Schedule at
// the earliest, and nothing that this step writes is read later.
func (s *Scheduler) Remove(q *Sequence) bool {
	list := &s.running
	switch q.state {
	case isWaiting:
		list = &s.waiting
	case isRunning:
	default:
		return false
	}
	i := slices.Index(*list, q)
	*list = slices.Delete(*list, i, i+1)
	s.release(q)
	q.state = isDone
	return true
}

// Schedule fills b with the next step and plan with the sequence of each b.Seqs[i]; both are emptied first. After the step the
// caller calls Advance once for each sequence in plan that is still alive, and then Append or Remove where it got a
// token. The step is empty only when there are no sequences.
func (s *Scheduler) Schedule(b *batch.Batch, plan []*Sequence) []*Sequence {
	st := step{s: s, b: b, plan: plan[:0], tokens: s.cfg.MaxBatchedTokens, logits: s.cfg.MaxLogits}
	b.Seqs = b.Seqs[:0]
	clear(s.promised)
	s.deferred = 0
	// Decode first: a token for everyone who is generating.
	for i := 0; i < len(s.running); i++ {
		q := s.running[i]
		if !q.decoding() || st.fits(q) == 0 {
			continue
		}
		if !s.grow(q) {
			break // q was the youngest
		}
		st.put(q, 1)
	}
	// Then prompts that are under way, oldest first.
	for _, q := range s.running {
		if q.decoding() {
			continue
		}
		s.catchUp(q)
		if n := st.fits(q); n > 0 && !st.waits(q) {
			st.put(q, n)
		}
	}
	// Then new ones, strictly in order of arrival: one that does not fit holds up the rest, so none starves.
	for len(s.waiting) > 0 && len(s.running) < s.cfg.MaxSeqs {
		q := s.waiting[0]
		if st.fits(q) == 0 || !s.admit(q) {
			break
		}
		if n := st.fits(q); n > 0 && !st.waits(q) {
			st.put(q, n)
		}
	}
	return st.plan
}

// admit moves the first waiting sequence to running if there are blocks for all its tokens. What the cache has of its
// beginning it need not compute.
func (s *Scheduler) admit(q *Sequence) bool {
	hit := s.match(q)
	need := s.pool.BlocksFor(len(q.Tokens)) - len(hit)
	if need > s.pool.Available()-s.pool.Idle(hit) {
		return false
	}
	s.retain(q, hit)
	s.alloc(q, append(make([]int32, 0, len(hit)+need), hit...), need)
	if s.pool.CachesPrefixes() && !q.preempted && !q.Score {
		s.reuse.QueriedTokens += int64(q.NumPrompt)
	}
	s.skip(q, len(hit)*s.pool.BlockSize())
	q.state = isRunning
	s.waiting[0] = nil // let go of it in the array behind
	s.waiting = s.waiting[1:]
	s.running = append(s.running, q)
	return true
}

// grow gets a block for the next token of q if it needs one. When none is free the youngest sequences give theirs back,
// until one is free or q itself was the youngest; then it returns false.
func (s *Scheduler) grow(q *Sequence) bool {
	need := s.pool.BlocksFor(len(q.Tokens)) - len(q.blocks)
	for need > s.pool.Available() {
		youngest := s.running[len(s.running)-1]
		s.preempt(youngest)
		if youngest == q {
			return false
		}
	}
	s.alloc(q, q.blocks, max(need, 0))
	return true
}

// alloc gives q the blocks and n more, which must be there.
func (s *Scheduler) alloc(q *Sequence, blocks []int32, n int) {
	var err error
	if q.blocks, err = s.pool.Alloc(blocks, n); err != nil {
		panic(fmt.Sprintf("scheduler: sequence %d: %v", q.ID, err))
	}
}

func (s *Scheduler) retain(q *Sequence, blocks []int32) {
	if err := s.pool.Retain(blocks...); err != nil {
		panic(fmt.Sprintf("scheduler: sequence %d: %v", q.ID, err))
	}
}

func (s *Scheduler) giveBack(q *Sequence, blocks []int32) {
	if err := s.pool.Release(blocks...); err != nil {
		panic(fmt.Sprintf("scheduler: sequence %d: %v", q.ID, err))
	}
}

// preempt puts the youngest running sequence back to the head of the queue. Its keys and values are computed again later.
func (s *Scheduler) preempt(q *Sequence) {
	s.running = s.running[:len(s.running)-1]
	s.release(q)
	q.computed, q.stored, q.preempted, q.state = 0, 0, true, isWaiting
	s.waiting = slices.Insert(s.waiting, 0, q)
	s.preemptions++
}

func (s *Scheduler) release(q *Sequence) {
	s.giveBack(q, q.blocks)
	q.blocks = nil
}

// Advance notes that the step ran numTokens more tokens of q, which must be alive.
func (s *Scheduler) Advance(q *Sequence, numTokens int) {
	q.computed += numTokens
	q.scored = max(q.scored, min(q.computed, q.NumPrompt))
	s.store(q)
}

// Append adds a generated token to q, of which all tokens before have run.
func (s *Scheduler) Append(q *Sequence, token int32) {
	if q.state != isRunning || q.computed != len(q.Tokens) {
		panic(fmt.Sprintf("scheduler: sequence %d, %v: a token after %d of %d", q.ID, q.state, q.computed, len(q.Tokens)))
	}
	q.Tokens = append(q.Tokens, token)
}

// step is the one being put together, with what is left of its budgets.
type step struct {
	s              *Scheduler
	b              *batch.Batch
	plan           []*Sequence
	tokens, logits int
}

// fits returns how many tokens of q the budgets still allow.
func (st *step) fits(q *Sequence) int {
	n := min(len(q.Tokens)-q.computed, st.tokens)
	for n > 0 && q.rows(n) > st.logits {
		// A prompt that is scored has a row for each token beyond those scored before; any other has one at its end.
		n -= q.rows(n) - st.logits
	}
	return n
}

func (st *step) put(q *Sequence, n int) {
	rows := q.rows(n)
	st.promise(q, n)
	st.b.Seqs = append(st.b.Seqs, batch.Seq{
		ID: q.ID, Tokens: q.Tokens[q.computed : q.computed+n], Start: q.computed,
		Blocks:    q.blocks[:st.s.pool.BlocksFor(q.computed+n)],
		NumLogits: rows, Generation: q.decoding(),
	})
	st.plan = append(st.plan, q)
	st.tokens -= n
	st.logits -= rows
}
