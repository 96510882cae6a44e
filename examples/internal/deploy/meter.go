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
	rank      int
	placement routing.Placement
	topK      int

	before comm.Stats   // the collectives of construction
	steps  []model.Rows // of this rank's replica
	choice Choices
}

// Choices is what routers chose, over all MoE layers and steps.
type Choices struct {
	Tokens      int64   // rows that were routed
	Copies      int64   // (token, rank) pairs: a token counts once for every rank that owns one of its experts
	CrossCopies int64   // of Copies, those to a rank other than the token's
	Pairs       []int64 // [ranks]: (token, expert) pairs of the experts that a rank owns; with sliced experts every rank has an equal part of all
}

func newMeter(m *model.Model, rank int, c *checkpoint.Config) *meter {
	p := m.Config().Parallel
	y := &meter{
		Model: m, rank: rank, topK: c.NumExpertsPerTok,
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

// Forward notes the step's sizes and runs the model.
func (m *meter) Forward(s comm.Stream, b *batch.Batch) ([]float32, error) {
	m.steps = append(m.steps, model.RowsOf(b))
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
	tp := d.Config.Layout.TP
	for r := 0; r < len(d.meters); r += tp {
		steps = int64(len(d.meters[r].steps))
		for _, rows := range d.meters[r].steps {
			if rows.Tokens == 0 {
				dummies++
			}
		}
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
func (d *Deployment) Formula() model.Traffic {
	var t model.Traffic
	l := d.Config.Layout
	cfg := d.Models[0].Config()
	replicas := make([]model.Rows, l.DP)
	for step := range d.meters[0].steps {
		for i := range replicas {
			replicas[i] = d.meters[i*l.TP].steps[step]
		}
		t = t.Add(cfg.Formula(d.folder.Config, replicas, 0))
	}
	if l.UseExchange() {
		// The copies that cross are known for the run, not for the step: count them once, without a step's other terms.
		with := cfg.Formula(d.folder.Config, replicas, d.Choices().CrossCopies)
		without := cfg.Formula(d.folder.Config, replicas, 0)
		for k := range t {
			t[k].Bytes += with[k].Bytes - without[k].Bytes
		}
	}
	return t
}
