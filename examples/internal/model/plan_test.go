package model

import (
	"github.com/weftgo/weft/examples/internal/batch"
)

// plan is the steps that replicas run for some prompts with their completions, all of equal length.
type plan struct {
	steps [][]planned // [replica][step]
}

// planned is a batch with what its rows of logits predict.
type planned struct {
	batch batch.Batch
	rows  []prediction
}

type prediction struct {
	prompt *golden
	at     int // token of prompt and completion that the row predicts
}

// planOptions say how to cut prompts into steps.
type planOptions struct {
	replicas  int
	blockSize int
	maxTokens int // of a step; prompts are cut at it
	chunk     int // longest piece of a prompt in one step; 0 means maxTokens
	echo      bool
	decode    int // steps after the prompt, at most
}

// makePlan deals the prompts round-robin, packs as many prompt tokens as fit in a step, then decodes all sequences of a replica
// together. Blocks are dealt in a shuffled order. Replicas that are done get empty steps.
func makePlan(prompts []*golden, o planOptions) *plan {
	if o.chunk == 0 {
		o.chunk = o.maxTokens
	}
	p := &plan{steps: make([][]planned, o.replicas)}
	most := 0
	for r := range o.replicas {
		var mine []*golden
		for i := r; i < len(prompts); i += o.replicas {
			mine = append(mine, prompts[i])
		}
		p.steps[r] = planReplica(mine, o)
		most = max(most, len(p.steps[r]))
	}
	for r := range p.steps {
		for len(p.steps[r]) < most {
			p.steps[r] = append(p.steps[r], planned{})
		}
	}
	return p
}

func planReplica(prompts []*golden, o planOptions) []planned {
	var steps []planned
	var cur planned
	room := o.maxTokens
	flush := func() {
		if len(cur.batch.Seqs) > 0 {
			steps = append(steps, cur)
		}
		cur, room = planned{}, o.maxTokens
	}
	blocks := make([][]int32, len(prompts))
	next := int32(0)
	for i, g := range prompts {
		n := (len(g.IDs) + len(g.Completion) + o.blockSize - 1) / o.blockSize
		for range n {
			blocks[i] = append(blocks[i], next)
			next++
		}
		for a, b := 0, n-1; a < b; a, b = a+1, b-1 { // not in order
			blocks[i][a], blocks[i][b] = blocks[i][b], blocks[i][a]
		}
	}
	for i, g := range prompts {
		for start := 0; start < len(g.IDs); {
			if room == 0 {
				flush()
			}
			n := min(room, o.chunk, len(g.IDs)-start)
			s := batch.Seq{ID: uint64(i), Tokens: g.IDs[start : start+n], Start: start, Blocks: blocks[i]}
			switch {
			case o.echo && g.Echo != nil || o.echo && g.Logits != nil:
				s.NumLogits = n
			case start+n == len(g.IDs):
				s.NumLogits = 1
			}
			for j := start + n - s.NumLogits; j < start+n; j++ {
				cur.rows = append(cur.rows, prediction{g, j + 1})
			}
			cur.batch.Seqs = append(cur.batch.Seqs, s)
			start += n
			room -= n
			if start < len(g.IDs) { // the next piece of this prompt needs the keys of this one
				flush()
			}
		}
	}
	flush()
	for step := 1; step <= o.decode; step++ {
		for i, g := range prompts {
			if step >= len(g.Completion) {
				continue
			}
			at := len(g.IDs) + step
			cur.batch.Seqs = append(cur.batch.Seqs, batch.Seq{ID: uint64(i), Tokens: g.Completion[step-1 : step], Start: at - 1,
				Blocks: blocks[i], NumLogits: 1, Generation: true})
			cur.rows = append(cur.rows, prediction{g, at})
		}
		flush()
	}
	return steps
}

// numBlocks is the blocks that a replica of the plan needs.
func (p *plan) numBlocks() int {
	n := int32(0)
	for _, steps := range p.steps {
		for _, s := range steps {
			for _, q := range s.batch.Seqs {
				for _, b := range q.Blocks {
					n = max(n, b+1)
				}
			}
		}
	}
	return int(max(n, 1))
}
