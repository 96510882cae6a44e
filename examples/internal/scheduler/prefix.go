package scheduler

import "slices"

// Reuse counts what the prefix cache saved: of each sequence the first computation of its prompt, not those after
// preemptions.
type Reuse struct {
	QueriedTokens int64 // of prompts that were looked up, which those to be scored are not
	HitTokens     int64 // of these, those whose keys and values were there
}

// Reuse returns the counts so far.
func (s *Scheduler) Reuse() Reuse { return s.reuse }

// reusable returns how many positions of q may come from the cache. The last token always runs, for its logits; of a prompt
// that is scored, all tokens that have not been.
func (q *Sequence) reusable() int {
	if q.Score && q.scored < q.NumPrompt {
		return q.scored
	}
	return len(q.Tokens) - 1
}

// match finds the blocks of q's longest computed beginning that it may skip, if that is longer than what it has computed. The
// slice is valid until the next match.
func (s *Scheduler) match(q *Sequence) []int32 {
	most := q.reusable() / s.pool.BlockSize()
	if most <= q.computed/s.pool.BlockSize() || !s.pool.CachesPrefixes() {
		return nil
	}
	s.matched = s.pool.Match(s.matched[:0], &q.Prefix, q.Tokens[:most*s.pool.BlockSize()])
	if len(s.matched) <= q.computed/s.pool.BlockSize() {
		return nil
	}
	return s.matched
}

// catchUp lets a running sequence go on where the cache ends, if others have computed more of its prompt than itself. The
// blocks that it does not need for this any more are given back.
func (s *Scheduler) catchUp(q *Sequence) {
	hit := s.match(q)
	if hit == nil {
		return
	}
	own := q.computed / s.pool.BlockSize()
	hit = hit[own:]
	s.retain(q, hit)
	given := slices.Clone(q.blocks[own : own+len(hit)])
	q.blocks = slices.Clone(q.blocks) // the step before holds the old slice and may still run on a peer
	copy(q.blocks[own:], hit)
	s.giveBack(q, given)
	s.skip(q, (own+len(hit))*s.pool.BlockSize())
}

// skip moves q on to position computed without running what is before.
func (s *Scheduler) skip(q *Sequence, computed int) {
	if !q.preempted {
		n := min(computed, q.NumPrompt) - min(q.computed, q.NumPrompt)
		q.cached += n
		s.reuse.HitTokens += int64(n)
	}
	q.computed = computed
}

// store makes the full blocks that q has computed findable.
func (s *Scheduler) store(q *Sequence) {
	full := q.computed / s.pool.BlockSize()
	if full == q.stored || !s.pool.CachesPrefixes() {
		return
	}
	q.stored = full
	s.pool.Store(&q.Prefix, q.Tokens[:full*s.pool.BlockSize()], q.blocks[:full])
}

// promise notes the blocks of q's prompt that this step completes, if a later sequence may want to wait for them: one whose
// rows of logits run out may take many steps, so it promises nothing.
func (st *step) promise(q *Sequence, n int) {
	if !st.s.cfg.WaitForPrefix || (q.Score && q.computed+n < q.NumPrompt) {
		return
	}
	size := st.s.pool.BlockSize()
	hashes := q.Prefix.Extend(q.Tokens, size)
	for i := q.computed / size; i < (q.computed+n)/size; i++ {
		st.s.promised[hashes[i]] = struct{}{}
	}
}

// waits reports whether q should sit this step out, because an older sequence computes in it at least half of what q has
// left. When that older one does not reach the end of its prompt, the step has no tokens left for q anyway; so q waits for
// at most one step that it could have been in, for each older sequence that shares more with it.
func (st *step) waits(q *Sequence) bool {
	if len(st.s.promised) == 0 {
		return false
	}
	size := st.s.pool.BlockSize()
	hashes := q.Prefix.Extend(q.Tokens, size)[:q.reusable()/size]
	end := q.computed / size
	for end < len(hashes) {
		// A collision of hashes costs a step, nothing else.
		if _, ok := st.s.promised[hashes[end]]; !ok {
			break
		}
		end++
	}
	if 2*(end*size-q.computed) < len(q.Tokens)-q.computed {
		return false
	}
	st.s.deferred++
	return true
}
