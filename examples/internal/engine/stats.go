package engine

import (
	"slices"
	"sync"

	"github.com/weftgo/weft/comm/lockstep"
)

// Stats is a snapshot of what an engine did. Dummy steps are counted apart and are in no other number.
type Stats struct {
	Steps         int64 // that all ranks ran together: some replica had tokens
	BalancedSteps int64 // of these, those in which all replicas had the same number
	Sleeps        int64 // times that all ranks went to sleep
	LastTokens    []int // [ranks] in the last step
	PaddingTokens int64 // over the steps, the sum of max - own over the replicas: what padding to the largest would cost

	Replicas []ReplicaStats // [DP]
}

// ReplicaStats is a snapshot of one replica.
type ReplicaStats struct {
	Steps, DummySteps               int64 // with tokens, without
	ContextTokens, GenerationTokens int64 // run: prompts and recomputed ones, decode steps
	Preemptions                     int64
	Running, Waiting                int
	Deferred                        int // of Running, those that sat the last step out because another computes their beginning
	KVUsed, KVTotal                 int // blocks
	KVCached                        int // blocks that nobody uses and that may serve another request; not in KVUsed

	// Of prompts, each counted once however often it was preempted: tokens that were looked up in the prefix cache (scored
	// prompts are not), and those of them that were there.
	PrefixQueriedTokens, PrefixHitTokens int64

	Stopped, AtLength, Aborted, Failed int64 // ended requests by reason

	StepTokens Histogram // tokens of a step that had any
	Sync       Histogram // seconds that the replica's leader spent in agreeing on a step, waiting for the slowest rank among them
}

func (s *ReplicaStats) count(reason FinishReason) {
	switch reason {
	case FinishStop:
		s.Stopped++
	case FinishLength:
		s.AtLength++
	case FinishAbort:
		s.Aborted++
	default:
		s.Failed++
	}
}

// Total returns the sums over the replicas.
func (s Stats) Total() ReplicaStats {
	var t ReplicaStats
	for _, r := range s.Replicas {
		t.Steps += r.Steps
		t.DummySteps += r.DummySteps
		t.ContextTokens += r.ContextTokens
		t.GenerationTokens += r.GenerationTokens
		t.Preemptions += r.Preemptions
		t.Running += r.Running
		t.Waiting += r.Waiting
		t.Deferred += r.Deferred
		t.KVUsed += r.KVUsed
		t.KVTotal += r.KVTotal
		t.KVCached += r.KVCached
		t.PrefixQueriedTokens += r.PrefixQueriedTokens
		t.PrefixHitTokens += r.PrefixHitTokens
		t.Stopped += r.Stopped
		t.AtLength += r.AtLength
		t.Aborted += r.Aborted
		t.Failed += r.Failed
		t.StepTokens = t.StepTokens.plus(r.StepTokens)
		t.Sync = t.Sync.plus(r.Sync)
	}
	return t
}

// globalStats is what rank 0 counts for all.
type globalStats struct {
	mu                      sync.Mutex
	steps, balanced, sleeps int64
	padding                 int64
	lastTokens              []int
}

// note counts an agreement; rank 0 calls it.
func (e *Engine) note(a *lockstep.Agreement) {
	g := &e.global
	g.mu.Lock()
	defer g.mu.Unlock()
	switch a.Decision {
	case lockstep.Sleep:
		g.sleeps++
	case lockstep.Run:
		g.steps++
		if a.Balanced {
			g.balanced++
		}
		g.padding += int64(a.MaxTokens*e.cfg.Layout.DP - a.SumTokens)
		copy(g.lastTokens, a.Tokens)
	}
}

// Stats returns a snapshot: of each replica at one moment, of the replicas one after the other.
func (e *Engine) Stats() Stats {
	g := &e.global
	g.mu.Lock()
	s := Stats{Steps: g.steps, BalancedSteps: g.balanced, Sleeps: g.sleeps, PaddingTokens: g.padding, LastTokens: slices.Clone(g.lastTokens)}
	g.mu.Unlock()
	for _, r := range e.replicas {
		r.mu.Lock()
		x := r.stats
		x.Preemptions = r.sched.Preemptions()
		x.Running, x.Waiting, x.Deferred = r.sched.Running(), r.sched.Waiting(), r.sched.Deferred()
		x.StepTokens, x.Sync = x.StepTokens.clone(), x.Sync.clone()
		pool, reuse := r.sched.Pool(), r.sched.Reuse()
		x.KVUsed, x.KVTotal, x.KVCached = pool.Used(), pool.Total(), pool.Cached()
		x.PrefixQueriedTokens, x.PrefixHitTokens = reuse.QueriedTokens, reuse.HitTokens
		r.mu.Unlock()
		s.Replicas = append(s.Replicas, x)
	}
	return s
}
