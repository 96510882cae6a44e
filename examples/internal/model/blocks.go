package model

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/par"
	"github.com/weftgo/weft/trace"
)

// The three second halves of a layer. Each begins with this rank's part of the attention output in m.mem.y and ends with
// the residual stream on every rank of the replica: m.x, to which m.pending is still to be added.

// denseBlock is a dense MLP, sliced over the replica: two all_reduces.
func (m *Model) denseBlock(s comm.Stream, y *layer) error {
	n, h := m.step.numTokens, m.model.HiddenSize
	in, out := m.mem.y[:n*h], m.mem.out[:n*h]
	if err := m.sumOverReplica(s, in); err != nil {
		return err
	}
	m.passRows(n, rowWork{y: in, norm: y.postNorm})
	span := m.lane.Begin(trace.Compute, "mlp")
	w := m.dense.len()
	y.gateUp.Mul(m.mem.gateUp, 2*w, in, h, n, false)
	par.For(n, rowGrain, m.fn.gate)
	y.down.Mul(out, h, m.mem.act, w, n, false)
	span.End()
	if err := m.sumOverReplica(s, out); err != nil {
		return err
	}
	m.pending = out
	return nil
}

// moeBlock is a MoE layer where every rank of the replica passes all rows (DP = 1, which ends in the layer's all_reduce) or is
// alone in it (TP = 1).
func (m *Model) moeBlock(s comm.Stream, y *layer) error {
	n, h := m.step.numTokens, m.model.HiddenSize
	in, out := m.mem.y[:n*h], m.mem.out[:n*h]
	if n > 0 {
		if err := m.sumOverReplica(s, in); err != nil {
			return err
		}
		m.passRows(n, rowWork{y: in, norm: y.postNorm})
	}
	if err := y.moe.Forward(s, comm.Of(out, h), comm.Of(in, h)); err != nil {
		return err
	}
	m.pending = out
	return nil
}

// scatteredMoE is a MoE layer with DP > 1 and TP > 1, where no token may be dispatched twice: the attention output is reduced
// and scattered by rows, each rank runs the layer on its own rows, and the rows are gathered again. The bytes are those of
// the all_reduce that it replaces.
func (m *Model) scatteredMoE(s comm.Stream, y *layer) error {
	n, h := m.step.numTokens, m.model.HiddenSize
	counts := m.mem.counts
	for t := range counts {
		counts[t] = share(n, len(counts), t).len()
	}
	own := share(n, len(counts), m.shard)
	in, out := m.mem.own[:own.len()*h], m.mem.out[:own.len()*h]
	if n > 0 {
		m.part[0] = comm.Part{Dst: comm.Of(in, h), Src: comm.Of(m.mem.y[:n*h], h)}
		if err := m.tp.ReduceScatterV(s, comm.Host(counts), comm.Sum, m.part[:]...); err != nil {
			return err
		}
		m.passRows(own.len(), rowWork{base: own.lo, y: in, norm: y.postNorm})
	}
	if err := y.moe.Forward(s, comm.Of(out, h), comm.Of(in, h)); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	m.passRows(own.len(), rowWork{base: own.lo, y: out})
	all := comm.Of(m.x, h)
	m.part[0] = comm.Part{Dst: all, Src: all.Slice(own.lo, own.hi)}
	return m.tp.AllGatherV(s, comm.Host(counts), m.part[:]...)
}

// sumOverReplica makes y [numTokens, hidden] the sum over the ranks of the replica.
func (m *Model) sumOverReplica(s comm.Stream, y []float32) error {
	if m.tp == nil {
		return nil
	}
	b := comm.Of(y, m.model.HiddenSize)
	return m.tp.AllReduce(s, b, b, comm.Sum)
}
