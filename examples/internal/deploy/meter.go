package deploy

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/examples/internal/batch"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/model"
	"github.com/weftgo/weft/routing"
)

// meter is a rank's model that also notes what every step had and what its routers chose, independently of what the
// collectives and the exchanger count. Its fields are read when the engine is stopped.
type meter struct {
	*model.Model
	mark      *marker
	rank      int
	placement routing.Placement
	topK      int

	before comm.Stats // the collectives of construction
	sizes  sizes
	choice Choices
}

// sizes adds up what the steps of this rank's replica had.
type sizes struct {
	steps, withTokens, withLogits int64
	tokens, logits                int64
}

// Choices is what routers chose, over all MoE layers and steps.
type Choices struct {
	Tokens      int64   // rows that were routed
	Copies      int64   // (token, rank) pairs: a token counts once for every rank that owns one of its experts
	CrossCopies int64   // of Copies, those to a rank other than the token's
	Pairs       []int64 // [ranks]: (token, expert) pairs of the experts that a rank owns; with sliced experts every rank has an equal part of all
}

func newMeter(m *model.Model, mark *marker, rank int, c *checkpoint.Config) *meter {
	p := m.Config().Parallel
	y := &meter{
		Model: m, mark: mark, rank: rank, topK: c.NumExpertsPerTok,
		placement: routing.Placement{NumExperts: max(1, c.NumExperts), Size: p.Size()},
		before:    m.Stats(),
		choice:    Choices{Pairs: make([]int64, p.Size())},
	}
	if p.DP > 1 || rank == 0 { // with dp = 1 all ranks route the same rows
		for _, l := range m.MoELayers() {
			l.SetObserver(y.note)
		}
	}
	return y
}

// InCollective is of engine.Waiter.
func (m *meter) InCollective() bool { return m.mark.in.Load() }

// Forward notes the step's sizes and runs the model.
func (m *meter) Forward(s comm.Stream, b *batch.Batch) ([]float32, error) {
	rows := model.RowsOf(b)
	m.sizes.steps++
	if rows.Tokens > 0 {
		m.sizes.withTokens++
		m.sizes.tokens += int64(rows.Tokens)
	}
	if rows.Logits > 0 {
		m.sizes.withLogits++
		m.sizes.logits += int64(rows.Logits)
	}
	return m.Model.Forward(s, b)
}

// note counts what one router chose for this rank's rows.
func (m *meter) note(ids []int32, _ []float32) {
	for t := 0; t+m.topK <= len(ids); t += m.topK {
		var seen uint64 // ranks, of which there are at most 64
		for _, e := range ids[t : t+m.topK] {
			owner, _ := m.placement.Owner(int(e))
			m.choice.Pairs[owner]++
			if bit := uint64(1) << owner; seen&bit == 0 {
				seen |= bit
				m.choice.Copies++
				if owner != m.rank {
					m.choice.CrossCopies++
				}
			}
		}
		m.choice.Tokens++
	}
}

// Choices adds up what the routers of all ranks chose.
func (d *Deployment) Choices() Choices {
	sum := Choices{Pairs: make([]int64, len(d.meters))}
	for _, m := range d.meters {
		sum.Tokens += m.choice.Tokens
		sum.Copies += m.choice.Copies
		sum.CrossCopies += m.choice.CrossCopies
		for r, n := range m.choice.Pairs {
			sum.Pairs[r] += n
		}
	}
	if !d.Config.Layout.EP {
		total := int64(0)
		for _, n := range sum.Pairs {
			total += n
		}
		for r := range sum.Pairs {
			sum.Pairs[r] = total / int64(len(sum.Pairs))
		}
	}
	return sum
}

// Steps returns how many forwards the world has run, and in how many of them, summed over replicas, a replica had no tokens.
func (d *Deployment) Steps() (steps, dummies int64) {
	for r := 0; r < len(d.meters); r += d.Config.Layout.TP {
		n := &d.meters[r].sizes
		steps = n.steps
		dummies += n.steps - n.withTokens
	}
	return steps, dummies
}

// Measured returns the collectives of all ranks' forwards as the driver counted them. Like Formula, Choices, Exchanged and
// Steps it is complete after Stop.
func (d *Deployment) Measured() model.Traffic {
	var t model.Traffic
	for _, m := range d.meters {
		t = t.Add(model.TrafficOf(m.Stats().Sub(m.before)))
	}
	return t
}

// Exchanged adds up what the exchangers of all ranks counted; zero if the layout has none.
func (d *Deployment) Exchanged() (sum ep.Stats) {
	for _, m := range d.Models {
		x, ok := m.Exchanger().(ep.Meter)
		if !ok {
			continue
		}
		s := x.Stats()
		sum.NumDispatches += s.NumDispatches
		sum.NumTokens += s.NumTokens
		sum.NumCopies += s.NumCopies
		sum.NumCrossCopies += s.NumCrossCopies
	}
	return sum
}

// Formula returns what Measured must be: computed from the model's shape, the tokens of each step and the routers' choices.
// model.Config.Formula is linear in the tokens and the logits of each replica, in bytes, and counts calls for those that have
// any; so sums over the steps are enough, and a server may run for ever.
func (d *Deployment) Formula() model.Traffic {
	l := d.Config.Layout
	cfg := d.Models[0].Config()
	at := func(replica int, rows model.Rows, crossCopies int64) model.Traffic {
		all := make([]model.Rows, l.DP)
		all[replica] = rows
		return cfg.Formula(d.folder.Config, all, crossCopies)
	}
	empty := at(0, model.Rows{}, 0) // what a step costs in which nobody has tokens
	var t model.Traffic
	for i := range l.DP {
		n := &d.meters[i*l.TP].sizes
		token, logit := at(i, model.Rows{Tokens: 1}, 0), at(i, model.Rows{Tokens: 1, Logits: 1}, 0)
		for k := range t {
			t[k].Calls += n.withTokens*(token[k].Calls-empty[k].Calls) + n.withLogits*(logit[k].Calls-token[k].Calls)
			t[k].Bytes += n.tokens*(token[k].Bytes-empty[k].Bytes) + n.logits*(logit[k].Bytes-token[k].Bytes)
		}
	}
	steps := d.meters[0].sizes.steps
	crossing := at(0, model.Rows{}, d.Choices().CrossCopies)
	for k := range t {
		t[k].Calls += steps * empty[k].Calls
		t[k].Bytes += steps*empty[k].Bytes + crossing[k].Bytes - empty[k].Bytes
	}
	return t
}
