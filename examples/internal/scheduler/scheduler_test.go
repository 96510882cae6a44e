package scheduler

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/examples/internal/batch"
	"github.com/weftgo/weft/examples/internal/batch/batchtest"
	"github.com/weftgo/weft/examples/internal/kvcache"
)

const vocab = 11

// rig is a scheduler with a model behind it.
type rig struct {
	t     require.TestingT
	s     *Scheduler
	model *batchtest.Model
	b     batch.Batch
	plan  []*Sequence
	ended map[uint64]int
	rows  map[uint64][]int // positions whose logits came, of scored prompts
}

func newRig(t require.TestingT, cfg Config, numBlocks, blockSize int) *rig {
	return newRigOn(t, cfg, numBlocks, blockSize, kvcache.New)
}

func newRigOn(t require.TestingT, cfg Config, numBlocks, blockSize int, newPool func(numBlocks, blockSize int) (*kvcache.Pool, error)) *rig {
	pool, err := newPool(numBlocks, blockSize)
	require.NoError(t, err)
	s, err := New(cfg, pool)
	require.NoError(t, err)
	return &rig{t: t, s: s, model: batchtest.New(vocab, numBlocks, blockSize), ended: map[uint64]int{}, rows: map[uint64][]int{}}
}

// step runs one step: each sequence that has run all its tokens gets the next one, greedily.
func (r *rig) step() {
	r.plan = r.s.Schedule(&r.b, r.plan)
	require.Len(r.t, r.plan, len(r.b.Seqs))
	logits, err := r.model.Forward(comm.Stream{}, &r.b)
	require.NoError(r.t, err)
	for i, q := range r.plan {
		bs := &r.b.Seqs[i]
		rows := logits[:bs.NumLogits*vocab]
		logits = logits[len(rows):]
		end := bs.Start + len(bs.Tokens)
		for j := range bs.NumLogits {
			p := end - bs.NumLogits + j
			if q.Score && p < q.NumPrompt && q.NumGenerated() == 0 {
				r.rows[q.ID] = append(r.rows[q.ID], p)
			}
			require.Equal(r.t, batchtest.Logits(q.Tokens[:p+1], vocab), rows[j*vocab:(j+1)*vocab])
		}
		r.s.Advance(q, len(bs.Tokens))
		if !q.Complete() {
			continue
		}
		if q.NumGenerated() < q.MaxTokens {
			require.Positive(r.t, bs.NumLogits)
			r.s.Append(q, batchtest.Greedy(q.Tokens, vocab))
		}
		if q.NumGenerated() >= q.MaxTokens || len(q.Tokens) >= r.s.cfg.MaxModelLen {
			require.True(r.t, r.s.Remove(q))
			r.end(q)
		}
	}
}

func (r *rig) end(q *Sequence) {
	r.ended[q.ID]++
	require.Equal(r.t, 1, r.ended[q.ID])
	prefix := slices.Clone(q.Tokens[:q.NumPrompt])
	for len(prefix) < len(q.Tokens) {
		prefix = append(prefix, batchtest.Greedy(prefix, vocab))
	}
	require.Equal(r.t, prefix, q.Tokens, "preemption, chunks and company change nothing")
	if q.Score && q.NumGenerated() >= min(q.MaxTokens, 1) && q.computed >= q.NumPrompt {
		want := make([]int, q.NumPrompt)
		for i := range want {
			want[i] = i
		}
		require.Equal(r.t, want, r.rows[q.ID], "every position of a scored prompt once, in order")
	}
}

// check holds the invariants after any action.
func (r *rig) check() {
	s := r.s
	require.NoError(r.t, s.pool.Check())
	holders := map[int32]int{}
	last := uint64(0)
	for _, q := range s.running {
		require.Equal(r.t, isRunning, q.state)
		require.Greater(r.t, q.ID, last, "running in order of arrival")
		last = q.ID
		for _, b := range q.blocks {
			holders[b]++
		}
		require.LessOrEqual(r.t, q.computed, len(q.Tokens))
		require.Less(r.t, q.cached, q.NumPrompt)
	}
	for _, q := range s.waiting {
		require.Equal(r.t, isWaiting, q.state)
		require.Greater(r.t, q.ID, last, "waiting behind running, in order of arrival")
		last = q.ID
		require.Empty(r.t, q.blocks)
	}
	require.Len(r.t, holders, s.pool.Used(), "every used block has an owner")
	for b, n := range holders {
		require.Equal(r.t, n, s.pool.Holders(b))
	}
	require.Equal(r.t, s.pool.Total(), s.pool.Free()+s.pool.Cached()+s.pool.Used())
	require.LessOrEqual(r.t, len(s.running), s.cfg.MaxSeqs)
}

func prompt(t *rapid.T, n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = int32(rapid.IntRange(0, vocab-1).Draw(t, "id"))
	}
	return p
}

func TestStateMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{
			MaxBatchedTokens: rapid.SampledFrom([]int{1, 4, 9, 20}).Draw(t, "max batched tokens"),
			MaxSeqs:          rapid.SampledFrom([]int{1, 3, 4, 6}).Draw(t, "max seqs"),
			MaxModelLen:      rapid.SampledFrom([]int{1, 8, 16, 30}).Draw(t, "max model len"),
			MaxLogits:        rapid.SampledFrom([]int{0, 1, 5, 9}).Draw(t, "max logits"),
		}
		blockSize := rapid.IntRange(1, 4).Draw(t, "block size")
		blocks := (cfg.MaxModelLen+rapid.IntRange(-8, 16).Draw(t, "spare positions"))/blockSize + 1 // tight
		newPool, beginning := kvcache.New, []int32(nil)
		if rapid.Bool().Draw(t, "prefix cache") {
			newPool, beginning = kvcache.NewCached, prompt(t, 12)
			cfg.WaitForPrefix = rapid.Bool().Draw(t, "wait for prefix")
		}
		r := newRigOn(t, cfg, max(blocks, 1), blockSize, newPool)
		var all []*Sequence
		added := 0
		addOne := func(t *rapid.T) {
			q := &Sequence{ID: uint64(len(all) + 1), Tokens: prompt(t, rapid.IntRange(0, 12).Draw(t, "prompt")),
				Prefix:    kvcache.Chain{Salt: rapid.SampledFrom([]string{"", "", "", "x"}).Draw(t, "salt")},
				MaxTokens: rapid.SampledFrom([]int{0, 1, 5, 14, 24}).Draw(t, "max tokens"), Score: rapid.Bool().Draw(t, "score")}
			n := len(q.Tokens)
			copy(q.Tokens, beginning[:min(len(beginning), rapid.IntRange(0, 12).Draw(t, "shared"))])
			most := min(n+max(q.MaxTokens-1, 0), cfg.MaxModelLen)
			fits := n > 0 && n+min(q.MaxTokens, 1) <= cfg.MaxModelLen && most <= r.s.pool.Total()*r.s.pool.BlockSize()
			if err := r.s.Add(q); !fits {
				require.Error(t, err)
				require.False(t, q.Alive())
				return
			} else {
				require.NoError(t, err)
			}
			require.Error(t, r.s.Add(q), "twice")
			all = append(all, q)
			added++
		}
		for range rapid.SampledFrom([]int{0, 2, 4, 6}).Draw(t, "at first") {
			addOne(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": addOne,
			"abort": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				q := all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
				alive := r.ended[q.ID] == 0
				require.Equal(t, alive, r.s.Remove(q))
				if alive {
					r.end(q)
				}
			},
			"step": func(t *rapid.T) {
				alive := len(r.s.running) + len(r.s.waiting)
				r.step()
				require.Equal(t, alive == 0, r.b.NumTokens() == 0, "a step is empty only when nobody is there")
				require.LessOrEqual(t, r.b.NumTokens(), cfg.MaxBatchedTokens)
				if cfg.MaxLogits > 0 {
					require.LessOrEqual(t, r.b.NumLogits(), cfg.MaxLogits)
				}
			},
			"": func(*rapid.T) { r.check() },
		})
		for range 100000 {
			if len(r.s.running)+len(r.s.waiting) == 0 {
				break
			}
			r.step()
			r.check()
		}
		require.Len(t, r.ended, added, "every request ended")
		require.Zero(t, r.s.pool.Used())
	})
}

func add(t *testing.T, r *rig, id uint64, numPrompt, maxTokens int, score bool) *Sequence {
	q := &Sequence{ID: id, Tokens: make([]int32, numPrompt), MaxTokens: maxTokens, Score: score}
	for i := range q.Tokens {
		q.Tokens[i] = int32(i % vocab)
	}
	require.NoError(t, r.s.Add(q))
	return q
}

func names(r *rig, steps int) []string {
	var n []string
	for range steps {
		r.step()
		r.check()
		n = append(n, r.b.Name())
	}
	return n
}

func TestDecodeFirstThenChunks(t *testing.T) {
	r := newRig(t, Config{MaxBatchedTokens: 8, MaxSeqs: 4, MaxModelLen: 100}, 100, 4)
	add(t, r, 1, 5, 4, false)
	add(t, r, 2, 12, 2, false)
	require.Equal(t, []string{
		"execute_context_2(8)_generation_0(0)", // all of 1, 3 tokens of 2
		"execute_context_1(7)_generation_1(1)",
		"execute_context_1(2)_generation_1(1)", // the end of 2
		"execute_context_0(0)_generation_2(2)", // both end
		"dummy_step",
	}, names(r, 5))
}

func TestScoringInChunks(t *testing.T) {
	r := newRig(t, Config{MaxBatchedTokens: 8, MaxSeqs: 4, MaxModelLen: 100, MaxLogits: 3}, 100, 4)
	add(t, r, 1, 7, 0, true)
	add(t, r, 2, 6, 1, false)
	r.step()
	require.Equal(t, []int{3, 5}, []int{len(r.b.Seqs[0].Tokens), len(r.b.Seqs[1].Tokens)}, "rows are spent, tokens are not")
	require.Equal(t, []int{3, 0}, []int{r.b.Seqs[0].NumLogits, r.b.Seqs[1].NumLogits})
	for range 3 {
		r.step()
	}
	require.Equal(t, map[uint64]int{1: 1, 2: 1}, r.ended)
}

// Three sequences grow until the cache is full: the youngest goes, the oldest never does, and all end as if alone.
func TestPreemptsTheYoungest(t *testing.T) {
	r := newRig(t, Config{MaxBatchedTokens: 64, MaxSeqs: 8, MaxModelLen: 64}, 8, 4)
	qs := []*Sequence{add(t, r, 1, 8, 12, true), add(t, r, 2, 8, 12, true), add(t, r, 3, 8, 12, true)}
	var order []uint64
	for len(r.ended) < 3 {
		before := len(r.ended)
		r.step()
		r.check()
		require.Zero(t, qs[0].computed-(len(qs[0].Tokens)-1), "the oldest runs in every step")
		for id := range r.ended {
			if len(r.ended) > before && !slices.Contains(order, id) {
				order = append(order, id)
			}
		}
		if len(r.ended) > 0 {
			break
		}
	}
	require.Equal(t, []uint64{1}, order)
	for len(r.ended) < 3 {
		r.step()
		r.check()
	}
	require.Positive(t, r.s.Preemptions())
}

func TestAddRefusesWithNumbers(t *testing.T) {
	r := newRig(t, Config{MaxBatchedTokens: 8, MaxSeqs: 4, MaxModelLen: 40}, 8, 4)
	for text, q := range map[string]*Sequence{
		"the prompt has 41 tokens, and prompt and output together may have 40": {Tokens: make([]int32, 41)},
		"the prompt has 40 tokens": {Tokens: make([]int32, 40), MaxTokens: 1},
		"a prompt of 30 tokens and up to 10 more need 10 blocks of 4; the key/value cache has 8": {Tokens: make([]int32, 30), MaxTokens: 50},
		"a prompt of 33 tokens and up to 0 more need 9 blocks of 4; the key/value cache has 8":   {Tokens: make([]int32, 33)},
		"a prompt of 3 tokens and up to 37 more need 10 blocks":                                  {Tokens: make([]int32, 3), MaxTokens: math.MaxInt}, // no sum may overflow: it would wait forever
	} {
		err := r.s.Add(q)
		require.ErrorIs(t, err, ErrTooLong)
		require.ErrorContains(t, err, text)
	}
	require.Error(t, r.s.Add(&Sequence{}))
	require.NoError(t, r.s.Add(&Sequence{Tokens: make([]int32, 32), MaxTokens: 1}), "exactly fits")
	for _, c := range []Config{{}, {MaxBatchedTokens: 1, MaxSeqs: 1}, {MaxBatchedTokens: 1, MaxSeqs: 1, MaxModelLen: 1, MaxLogits: -1}} {
		_, err := New(c, r.s.pool)
		require.Error(t, err)
	}
}

// A long prompt at the head holds up short ones behind it, and is not overtaken.
func TestNoStarvation(t *testing.T) {
	r := newRig(t, Config{MaxBatchedTokens: 32, MaxSeqs: 8, MaxModelLen: 32}, 8, 4)
	add(t, r, 1, 16, 8, false)
	long := add(t, r, 2, 24, 2, false)
	id := uint64(3)
	for steps := 0; r.ended[2] == 0; steps++ {
		require.Less(t, steps, 20)
		add(t, r, id, 1, 1, false) // always somebody shorter
		id++
		r.step()
		if long.Alive() && long.state == isWaiting {
			require.Equal(t, 0, r.ended[3])
		}
	}
}

func TestScheduleAllocatesNothing(t *testing.T) {
	r := newRig(t, Config{MaxBatchedTokens: 64, MaxSeqs: 8, MaxModelLen: 1 << 20}, 1<<16, 16)
	for id := range uint64(8) {
		q := add(t, r, id+1, 3, 1<<20, false)
		q.Tokens = slices.Grow(q.Tokens, 1<<12)
	}
	r.step()
	for _, q := range r.s.running {
		q.blocks = slices.Grow(q.blocks, 1<<8)
	}
	require.Zero(t, testing.AllocsPerRun(200, func() {
		r.plan = r.s.Schedule(&r.b, r.plan)
		for i, q := range r.plan {
			r.s.Advance(q, len(r.b.Seqs[i].Tokens))
			r.s.Append(q, 1)
		}
	}))
}

// A cache that only just holds the longest sequence, under several that grow: much is computed again, nothing changes.
func TestFullCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(t, Config{MaxBatchedTokens: rapid.SampledFrom([]int{5, 64}).Draw(t, "max batched tokens"), MaxSeqs: 6, MaxModelLen: 32}, 8, 4)
		for id := range uint64(4) {
			q := &Sequence{ID: id + 1, Tokens: prompt(t, rapid.IntRange(1, 8).Draw(t, "prompt")), MaxTokens: rapid.IntRange(16, 24).Draw(t, "max tokens"),
				Score: rapid.Bool().Draw(t, "score")}
			require.NoError(t, r.s.Add(q))
		}
		for steps := 0; len(r.ended) < 4; steps++ {
			require.Less(t, steps, 1000)
			r.step()
			r.check()
		}
		require.Positive(t, r.s.Preemptions())
		require.Zero(t, r.s.pool.Used())
	})
}
