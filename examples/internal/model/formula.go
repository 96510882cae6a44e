package model

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/examples/internal/batch"
	"github.com/weftgo/weft/examples/internal/checkpoint"
)

// Traffic is what collectives cost, by kind and summed over all ranks: calls, and bytes moved between two different ranks.
// It is what the Stats of all ranks add up to.
type Traffic [comm.NumOpKinds]struct{ Calls, Bytes int64 }

func (t *Traffic) add(k comm.OpKind, calls int, bytes int64) {
	t[k].Calls += int64(calls)
	t[k].Bytes += bytes
}

// Add returns the sums of both.
func (t Traffic) Add(u Traffic) Traffic {
	for k := range u {
		t.add(comm.OpKind(k), int(u[k].Calls), u[k].Bytes)
	}
	return t
}

// TrafficOf returns the counters of some ranks in the shape of a Traffic.
func TrafficOf(ranks ...comm.Stats) Traffic {
	var t Traffic
	for _, s := range ranks {
		for k, c := range s {
			t.add(comm.OpKind(k), int(c.Calls), c.SentBytes)
		}
	}
	return t
}

// Rows is what one replica's step has: tokens, and tokens whose logits are wanted.
type Rows struct{ Tokens, Logits int }

// RowsOf counts a batch.
func RowsOf(b *batch.Batch) Rows { return Rows{b.NumTokens(), b.NumLogits()} }

// Formula computes from the sizes alone what one Forward of all replicas costs. With P ranks in a group, an all_reduce of S
// bytes moves 2(P-1)S, an all_gather(v) or reduce_scatter(v) of S bytes in all moves (P-1)S. Of T tokens of hidden size H:
//
//	                       attention                      MLP or MoE, over all W ranks with N tokens
//	dense layer            all_reduce T·H                 all_reduce T·H, over the replica
//	MoE, dp = 1            all_reduce T·H                 all_reduce T·H
//	MoE, dp > 1 without ep reduce_scatterv, all_gatherv   all_gatherv N·(H+2k), reduce_scatterv N·H
//	MoE, agrs              reduce_scatterv, all_gatherv   all_gatherv N·(H+2k), reduce_scatterv N·H
//	MoE, alltoall          reduce_scatterv, all_gatherv   all_gather W·(W+1), alltoallv C·(H+2k), alltoallv C·H
//	output head            all_gather tp·L·ceil(vocab/tp) for L rows of logits, over the replica
//
// each value four bytes. What is over the replica (the attention column and the head too) is there when tp > 1, for replicas
// that have tokens. C is crossCopies: the (token, other rank) pairs of all ranks and MoE layers together, which depend on
// the router (ep.Stats.NumCrossCopies counts them); other backends ignore it. With RankInvariant the way back is not
// covered: it moves expert rows.
func (c Config) Formula(m *checkpoint.Config, replicas []Rows, crossCopies int64) Traffic {
	c = c.withDefaults()
	var t Traffic
	h, tp := int64(m.HiddenSize), c.Parallel.TP
	numMoE := numMoE(m)
	numDense := m.NumHiddenLayers - numMoE
	total := int64(0)
	for _, r := range replicas {
		total += int64(r.Tokens)
		if r.Tokens == 0 || tp == 1 {
			continue
		}
		peers, size := int64(tp-1), 4*int64(r.Tokens)*h
		numReduce := 2 * numDense
		if c.Parallel.DP == 1 {
			numReduce += numMoE // the other one is the MoE layer's
		} else {
			t.add(comm.ReduceScatterV, numMoE*tp, int64(numMoE)*peers*size)
			t.add(comm.AllGatherV, numMoE*tp, int64(numMoE)*peers*size)
		}
		t.add(comm.AllReduce, numReduce*tp, int64(numReduce)*2*peers*size)
		if r.Logits > 0 {
			_, width := paddedShare(m.VocabSize, tp, 0)
			t.add(comm.AllGather, tp, peers*4*int64(tp)*int64(r.Logits)*int64(width))
		}
	}
	if numMoE > 0 {
		c.formulaMoE(&t, m, total, crossCopies)
	}
	return t
}

func (c Config) formulaMoE(t *Traffic, m *checkpoint.Config, total, crossCopies int64) {
	n, ranks := numMoE(m), c.Parallel.Size()
	row := 4 * int64(m.HiddenSize)
	routed := row + 8*int64(m.NumExpertsPerTok) // with k weights and k ids
	peers := int64(n) * int64(ranks-1)
	switch {
	case c.Parallel.DP == 1:
		t.add(comm.AllReduce, n*ranks, 2*peers*total*row)
	case c.Parallel.EP && c.Backend == "alltoall":
		t.add(comm.AllGather, n*ranks, peers*4*int64(ranks)*int64(ranks+1))
		t.add(comm.AllToAllV, 2*n*ranks, crossCopies*(routed+row))
	default:
		t.add(comm.AllGatherV, n*ranks, peers*total*routed)
		t.add(comm.ReduceScatterV, n*ranks, peers*total*row)
	}
}
