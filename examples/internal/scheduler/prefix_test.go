package scheduler

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/examples/internal/kvcache"
)

func cachedRig(t *testing.T, cfg Config, numBlocks, blockSize int) *rig {
	return newRigOn(t, cfg, numBlocks, blockSize, kvcache.NewCached)
}

// ids returns a prompt of n tokens of which the first shared are those of all such prompts, and the others are its own.
func ids(own int32, shared, n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		if p[i] = int32(i*i) % vocab; i >= shared {
			p[i] = (own + int32(i)) % vocab
		}
	}
	return p
}

// begin adds a sequence.
func begin(t *testing.T, r *rig, id uint64, tokens []int32, maxTokens int, score bool) *Sequence {
	q := &Sequence{ID: id, Tokens: slices.Clone(tokens), MaxTokens: maxTokens, Score: score}
	require.NoError(t, r.s.Add(q))
	return q
}

// starts returns, of the step run last, where each sequence started.
func starts(r *rig) map[uint64]int {
	m := map[uint64]int{}
	for i := range r.b.Seqs {
		m[r.b.Seqs[i].ID] = r.b.Seqs[i].Start
	}
	return m
}

func (r *rig) drain(t *testing.T) {
	for steps := 0; len(r.s.running)+len(r.s.waiting) > 0; steps++ {
		require.Less(t, steps, 1000)
		r.step()
		r.check()
	}
}

var roomy = Config{MaxBatchedTokens: 64, MaxSeqs: 8, MaxModelLen: 64}

// A prompt that was there before runs one block at most, and its last token always, whatever its length.
func TestWholePromptCached(t *testing.T) {
	for n, computed := range map[int]int{1: 0, 3: 0, 4: 0, 5: 4, 7: 4, 8: 4, 9: 8, 31: 28, 32: 28, 33: 32} {
		r := cachedRig(t, roomy, 64, 4)
		begin(t, r, 1, ids(1, 0, n), 1, false)
		r.drain(t)
		q := begin(t, r, 2, ids(1, 0, n), 1, false)
		r.step()
		require.Equal(t, map[uint64]int{2: computed}, starts(r), "%d tokens", n)
		require.Equal(t, computed, q.NumCached())
		require.Equal(t, map[uint64]int{1: 1, 2: 1}, r.ended)
		require.Equal(t, Reuse{QueriedTokens: int64(2 * n), HitTokens: int64(computed)}, r.s.Reuse())
	}
}

// What was generated is cached like what was asked: a conversation goes on where it ended.
func TestGeneratedTokensAreCached(t *testing.T) {
	r := cachedRig(t, roomy, 64, 4)
	q := begin(t, r, 1, ids(1, 0, 6), 8, false) // the last of 14 tokens has not run
	r.drain(t)
	next := begin(t, r, 2, append(slices.Clone(q.Tokens), 1, 2, 3), 1, false)
	r.step()
	require.Equal(t, 12, next.NumCached())
}

// A block counts when the step that computes it has ended, not before.
func TestHitsOnlyWhatIsComputed(t *testing.T) {
	r := cachedRig(t, roomy, 64, 4)
	begin(t, r, 1, ids(1, 20, 24), 3, false)
	begin(t, r, 2, ids(2, 20, 24), 3, false)
	r.step()
	require.Equal(t, map[uint64]int{1: 0, 2: 0}, starts(r), "both in one step: there is nothing yet")
	begin(t, r, 3, ids(3, 20, 24), 3, false)
	r.plan = r.s.Schedule(&r.b, r.plan) // the step that computes nothing: it fails
	require.Equal(t, map[uint64]int{1: 24, 2: 24, 3: 20}, starts(r), "in the next step it is there")
	q := begin(t, r, 4, ids(3, 24, 28), 3, false)
	q.Prefix.Salt = "its own"
	r.step()
	require.Equal(t, 0, starts(r)[4])
	r.drain(t)
}

// A step that was put together and never ended leaves nothing in the cache.
func TestAbortedStepsAreNotCached(t *testing.T) {
	r := cachedRig(t, Config{MaxBatchedTokens: 12, MaxSeqs: 8, MaxModelLen: 64}, 64, 4)
	q := begin(t, r, 1, ids(1, 0, 24), 1, false)
	r.step() // 12 tokens are computed
	r.plan = r.s.Schedule(&r.b, r.plan)
	require.True(t, r.s.Remove(q)) // 12 more are under way
	require.Equal(t, 3, r.s.pool.Cached())
	begin(t, r, 2, ids(1, 0, 24), 1, false)
	r.step()
	require.Equal(t, map[uint64]int{2: 12}, starts(r))
	r.drain(t)
}

// A prompt that is under way catches up with what another computed in the meantime, also from the middle of a block.
func TestCatchesUp(t *testing.T) {
	r := cachedRig(t, Config{MaxBatchedTokens: 30, MaxSeqs: 8, MaxModelLen: 64}, 64, 4)
	begin(t, r, 1, ids(1, 20, 24), 1, false)
	q := begin(t, r, 2, ids(2, 20, 24), 1, false)
	r.step()
	require.Equal(t, 6, q.computed, "what the budget left")
	used, blocks := r.s.pool.Used(), r.b.Seqs[1].Blocks
	before := slices.Clone(blocks)
	r.step()
	require.Equal(t, before, blocks, "a peer may still run the step before")
	require.Equal(t, map[uint64]int{2: 20}, starts(r))
	require.Equal(t, 14, q.NumCached())
	require.Less(t, r.s.pool.Used(), used)
	require.Equal(t, Reuse{QueriedTokens: 48, HitTokens: 14}, r.s.Reuse())
}

// A prompt that is scored runs every token, however much is cached; and what it computes serves others.
func TestScoredPromptsRunEveryToken(t *testing.T) {
	r := cachedRig(t, roomy, 64, 4)
	begin(t, r, 1, ids(1, 0, 24), 1, false)
	r.drain(t)
	q := begin(t, r, 2, ids(1, 0, 24), 2, true)
	r.step()
	require.Equal(t, map[uint64]int{2: 0}, starts(r))
	require.Len(t, r.rows[2], 24)
	r.drain(t)
	require.Zero(t, q.NumCached())
	require.EqualValues(t, 24, r.s.Reuse().QueriedTokens, "it was not looked up")
	begin(t, r, 3, append(slices.Clone(q.Tokens), 1), 1, false)
	r.step()
	require.Equal(t, map[uint64]int{3: 24}, starts(r))
}

// A scored prompt that is preempted in the middle goes on where its rows ended, if its blocks are still there.
func TestPreemptedScoreReusesWhatWasScored(t *testing.T) {
	r := cachedRig(t, Config{MaxBatchedTokens: 64, MaxSeqs: 8, MaxModelLen: 64, MaxLogits: 9}, 12, 4)
	begin(t, r, 1, ids(1, 0, 14), 9, false) // grows from 4 blocks to 6
	q := begin(t, r, 2, ids(2, 0, 32), 1, true)
	r.step() // 8 rows are left for the second
	for steps := 0; r.s.Preemptions() == 0; steps++ {
		require.Less(t, steps, 20)
		r.step()
		r.check()
	}
	scored := q.scored
	require.Greater(t, scored, 8)
	for steps := 0; q.state == isWaiting; steps++ {
		require.Less(t, steps, 20)
		r.step()
		r.check()
	}
	require.Positive(t, starts(r)[2])
	require.LessOrEqual(t, starts(r)[2], scored)
	r.drain(t) // checks that every row came once
	require.Zero(t, q.NumCached(), "it computed all of them itself")
}

// A prompt that is computed again after a preemption is found again, whatever was evicted in between.
func TestPreemptedPromptIsStoredAgain(t *testing.T) {
	r := cachedRig(t, roomy, 8, 4)
	q := begin(t, r, 1, ids(1, 0, 9), 8, false)
	r.step()
	r.s.preempt(q)
	all, err := r.s.pool.Alloc(nil, 8)
	require.NoError(t, err)
	require.NoError(t, r.s.pool.Release(all...))
	require.Equal(t, 8, r.s.pool.Free(), "all evicted")
	r.step()
	begin(t, r, 2, ids(1, 0, 9), 1, false)
	r.step()
	require.Equal(t, 8, starts(r)[2])
	r.drain(t)
}

// Cached blocks that a new sequence will use are not counted as room for its others.
func TestHitsAreNotRoom(t *testing.T) {
	r := cachedRig(t, roomy, 8, 4)
	begin(t, r, 1, ids(1, 0, 17), 1, false)
	r.drain(t)
	require.Equal(t, 4, r.s.pool.Cached())
	begin(t, r, 2, ids(2, 0, 8), 3, false) // 2 blocks, then 3, for three steps
	r.step()
	begin(t, r, 3, ids(1, 16, 28), 1, false) // 4 that are there and 3 more
	r.step()
	r.check()
	require.Equal(t, 1, r.s.Waiting())
	r.drain(t)
	require.Len(t, r.ended, 3)
}

// Nobody waits for a scored prompt that takes its time because rows of logits are short.
func TestNobodyWaitsForRows(t *testing.T) {
	r := cachedRig(t, Config{MaxBatchedTokens: 200, MaxSeqs: 8, MaxModelLen: 64, MaxLogits: 9, WaitForPrefix: true}, 100, 4)
	begin(t, r, 1, ids(1, 12, 12), 0, true)
	begin(t, r, 2, ids(1, 12, 16), 1, false)
	r.step()
	require.Equal(t, map[uint64]int{1: 0, 2: 0}, starts(r))
	r.drain(t)
}

// Four candidates of one posting arrive together. Without waiting all are computed in the step; with waiting, one is, and the others
// from where they differ.
func TestWaitForPrefix(t *testing.T) {
	for _, wait := range []bool{false, true} {
		cfg := Config{MaxBatchedTokens: 200, MaxSeqs: 8, MaxModelLen: 64, WaitForPrefix: wait}
		r := cachedRig(t, cfg, 100, 4)
		for id := range uint64(4) {
			begin(t, r, id+1, ids(int32(id), 40, 48), 1, false)
		}
		begin(t, r, 5, ids(9, 4, 40), 1, false) // shares too little to wait for
		r.step()
		r.check()
		if !wait {
			require.Equal(t, map[uint64]int{1: 0, 2: 0, 3: 0, 4: 0, 5: 0}, starts(r)) // the fifth in part
			continue
		}
		require.Equal(t, map[uint64]int{1: 0, 5: 0}, starts(r))
		require.Equal(t, 3, r.s.Deferred())
		r.step()
		require.Zero(t, r.s.Deferred())
		require.Equal(t, map[uint64]int{2: 40, 3: 40, 4: 40}, starts(r))
		require.Len(t, r.ended, 5)
		require.Equal(t, Reuse{QueriedTokens: 4*48 + 40, HitTokens: 120}, r.s.Reuse())
	}
}

// Who waits is not lost when the one it waits for goes away.
func TestWaitForPrefixThatIsAborted(t *testing.T) {
	r := cachedRig(t, Config{MaxBatchedTokens: 200, MaxSeqs: 8, MaxModelLen: 64, WaitForPrefix: true}, 100, 4)
	a, b := begin(t, r, 1, ids(1, 40, 48), 4, false), begin(t, r, 2, ids(2, 40, 48), 4, false)
	r.plan = r.s.Schedule(&r.b, r.plan)
	require.Equal(t, []*Sequence{a}, r.plan)
	require.True(t, r.s.Remove(a))
	r.step()
	require.Equal(t, map[uint64]int{2: 0}, starts(r))
	r.drain(t)
	require.Zero(t, b.NumCached())
}

// Shared blocks are as good as free ones when nobody runs: a cache full of old prompts refuses nothing and preempts nobody.
func TestOldPromptsMakeRoom(t *testing.T) {
	r := cachedRig(t, roomy, 16, 4) // the longest sequence fills it
	for id := range uint64(20) {
		begin(t, r, id+1, ids(int32(id), 0, 64), 0, true)
		r.drain(t)
		require.Equal(t, 16, r.s.pool.Available())
	}
	require.Equal(t, 16, r.s.pool.Cached())
	require.Zero(t, r.s.Preemptions())
}

func TestCachingDecodeAllocatesNothing(t *testing.T) {
	r := cachedRig(t, Config{MaxBatchedTokens: 64, MaxSeqs: 8, MaxModelLen: 1 << 20}, 1<<12, 1<<10)
	for id := range uint64(8) {
		q := begin(t, r, id+1, ids(int32(id), 0, 3), 1<<20, false)
		q.Tokens = slices.Grow(q.Tokens, 1<<12)
	}
	r.step()
	require.Zero(t, testing.AllocsPerRun(200, func() {
		r.plan = r.s.Schedule(&r.b, r.plan)
		for i, q := range r.plan {
			r.s.Advance(q, len(r.b.Seqs[i].Tokens))
			r.s.Append(q, 1)
		}
	}))
}
