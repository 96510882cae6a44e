package model

import (
	"context"
	"errors"
	"fmt"

	"github.com/weftgo/weft/agrs"
	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/safetensors"
	"github.com/weftgo/weft/internal/gemm"
	"github.com/weftgo/weft/moe"
	"github.com/weftgo/weft/trace"
)

// Model is one rank's part of a model, with its block of the key/value cache. One goroutine uses it at a time.
type Model struct {
	cfg   Config
	model *checkpoint.Config
	world *comm.Comm // all tp x dp ranks
	tp    *comm.Comm // the ranks of this replica; nil when TP is 1
	lane  *trace.Lane

	replica, shard int // this rank is replica x TP + shard
	heads          span
	groups         []group // one for each key/value head of this rank
	dense          span    // columns of dense MLPs
	vocab          span    // rows of the output head
	vocabWidth     int     // rows of the output head that every rank gathers
	geo            geometry

	embedding safetensors.Tensor
	layers    []*layer
	layer     *layer // the one that runs
	finalNorm []float32
	head      *gemm.Packed
	rope      rope
	moe       moe.Config   // of every MoE layer
	exchanger ep.Exchanger // shared by the MoE layers, which run one after another; nil when none is needed

	step    step
	row     rowWork
	workers chan *worker
	part    [1]comm.Part
	fn      functions
	mem     buffers
	x       []float32 // [numTokens, hidden] residual stream of the step
	pending []float32 // [numTokens, hidden] what is still to be added to x; nil for nothing
	q       []float32 // queries of the step, see attendUnit
	attn    []float32 // [numTokens, local heads x headDim]

	probe func(at probePoint, layer int, rows []float32) // tests look in here
}

// probePoint is where a test looks.
type probePoint uint8

const (
	probeEmbedding probePoint = iota // [numTokens, hidden]
	probeLayer                       // [numTokens, hidden], output of a layer
	probeFinal                       // [numLogits, hidden], after the final norm
)

// layer is one transformer layer's weights and cache on this rank.
type layer struct {
	index               int
	inputNorm, postNorm []float32
	queryNorm, keyNorm  []float32
	qkv, out            *gemm.Packed
	gateUp, down        *gemm.Packed // dense layers only
	moe                 *moe.Layer
	cache               cache
}

// numMoE counts the MoE layers.
func numMoE(c *checkpoint.Config) int {
	n := 0
	for i := range c.NumHiddenLayers {
		if c.IsMoE(i) {
			n++
		}
	}
	return n
}

// New loads this rank's part of the model in folder. It is collective over c, which holds all TP x DP ranks: rank is
// replica x TP + shard. The folder must stay open as long as the model is used: embeddings are read from it row by row. A tracer
// must be set on c before, since the group of the replica inherits it.
func New(ctx context.Context, c *comm.Comm, folder *checkpoint.Folder, cfg Config) (*Model, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Check(folder.Config, c.Size()); err != nil {
		return nil, err
	}
	m := &Model{cfg: cfg, model: folder.Config, world: c, lane: cfg.Lane, moe: cfg.moeConfig(folder.Config)}
	m.moe.Workspace = new(moe.Workspace)
	m.cut(c.Rank())
	if cfg.Parallel.TP > 1 {
		var err error
		if m.tp, err = c.Split(ctx, m.replica, m.shard); err != nil {
			return nil, fmt.Errorf("model: group of replica %d: %w", m.replica, err)
		}
	}
	if err := m.makeExchanger(ctx); err != nil {
		return nil, fmt.Errorf("model: exchanger: %w", err)
	}
	if err := m.load(ctx, &loader{folder: folder}); err != nil {
		return nil, err
	}
	m.rope = newRope(m.model.HeadDim, m.maxPositions(), m.model.RopeTheta)
	m.allocate()
	return m, nil
}

func (m *Model) load(ctx context.Context, l *loader) error {
	if err := m.loadHead(l); err != nil {
		return err
	}
	for i := range m.model.NumHiddenLayers {
		y, err := m.loadLayer(l, i)
		if err != nil {
			return err
		}
		if m.model.IsMoE(i) {
			if err := m.makeMoE(ctx, l, y); err != nil {
				return err
			}
		}
		m.layers = append(m.layers, y)
	}
	return nil
}

// Close frees what the ranks share. It is collective on a living world and waits for nobody on a dead one. The world and the
// folder stay the caller's.
func (m *Model) Close(ctx context.Context) error {
	var errs []error
	if m.exchanger != nil {
		errs = append(errs, m.exchanger.Close(ctx))
	}
	if m.tp != nil {
		errs = append(errs, m.tp.Close(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("model: close: %w", err)
	}
	return nil
}

// MoELayers returns the MoE layers in order: what they chose (String) and the load of their experts (Load).
func (m *Model) MoELayers() []*moe.Layer {
	var out []*moe.Layer
	for _, y := range m.layers {
		if y.moe != nil {
			out = append(out, y.moe)
		}
	}
	return out
}

// Exchanger returns the exchanger that all MoE layers share, for its name and, as an ep.Meter, its counters; nil when the layout
// needs none.
func (m *Model) Exchanger() ep.Exchanger { return m.exchanger }

// Stats returns the collectives of this rank so far, those of the world's Comm and those of the replica's group together. New
// runs some too: what steps cost is the difference to the Stats after New, and [Config.Formula] says what it must be.
func (m *Model) Stats() comm.Stats {
	s := m.world.Stats()
	if m.tp != nil {
		s = s.Add(m.tp.Stats())
	}
	return s
}

// Config returns the configuration with its defaults filled in.
func (m *Model) Config() Config { return m.cfg }

// cut computes this rank's shares.
func (m *Model) cut(rank int) {
	tp := m.cfg.Parallel.TP
	c := m.model
	m.replica, m.shard = rank/tp, rank%tp
	m.heads, m.groups = headGroups(c.NumAttentionHeads, c.NumKeyValueHeads, tp, m.shard)
	m.dense = share(c.IntermediateSize, tp, m.shard)
	m.vocab, m.vocabWidth = paddedShare(c.VocabSize, tp, m.shard)
	m.geo = newGeometry(len(m.groups), c.HeadDim, m.cfg.BlockSize, m.cfg.NumBlocks)
}

// maxPositions is the longest sequence that can run.
func (m *Model) maxPositions() int {
	return min(m.model.MaxPositionEmbeddings, m.cfg.BlockSize*m.cfg.NumBlocks)
}

// qkvWidth is the columns of one row of queries, keys and values.
func (m *Model) qkvWidth() int { return (m.heads.len() + 2*len(m.groups)) * m.model.HeadDim }

// moeConfig is the shape of every MoE layer.
func (c Config) moeConfig(m *checkpoint.Config) moe.Config {
	most := c.MaxBatchedTokens
	if c.Parallel.DP > 1 { // each rank of a replica passes its share of the rows
		most = (most + c.Parallel.TP - 1) / c.Parallel.TP
	}
	return moe.Config{Hidden: m.HiddenSize, NumExperts: m.NumExperts, TopK: m.NumExpertsPerTok, Intermediate: m.MoEIntermediateSize,
		Renormalize: m.NormTopKProb, MaxTokens: most, Parallel: c.Parallel, RankInvariant: c.RankInvariant}
}

// makeExchanger makes the exchanger that the MoE layers share, if they need one.
func (m *Model) makeExchanger(ctx context.Context) (err error) {
	cfg := m.moe.Exchange()
	switch {
	case numMoE(m.model) == 0 || !m.cfg.Parallel.UseExchange():
	case m.cfg.Backend == "agrs":
		m.exchanger, err = agrs.New(ctx, m.world, cfg)
	default:
		m.exchanger, err = alltoall.New(ctx, m.world, cfg)
	}
	return err
}

func (m *Model) makeMoE(ctx context.Context, l *loader, y *layer) error {
	c, rank := m.model, m.world.Rank()
	router, err := l.rows(nil, checkpoint.LayerTensor(y.index, "mlp.gate"), c.NumExperts, c.HiddenSize, span{0, c.NumExperts})
	if err != nil {
		return err
	}
	lo, hi := m.moe.ExpertSlice(rank)
	own := func(local int) int { return m.moe.LocalExpert(rank, local) }
	w := moe.Weights{Router: router, Expert: m.expertLoader(l, y.index, own, span{lo, hi})}
	if y.moe, err = moe.New(ctx, m.world, m.moe, w, m.exchanger); err != nil {
		return fmt.Errorf("model: layer %d: %w", y.index, err)
	}
	y.moe.SetLane(m.lane)
	return nil
}
