package sampling

import (
	"math"
)

// Sampler picks tokens. It keeps scratch memory of the vocabulary's size; one goroutine uses it at a time.
type Sampler struct {
	z      []float32 // [vocab] logits after bias and penalties
	counts []int32   // [vocab] in the output; all zero between calls
	heap   []weighed // candidates
	kept   []weighed // those that a filter left, best first
}

// weighed is a candidate with its logit, later its weight.
type weighed struct {
	id int32
	z  float32
}

// before is the order of candidates: larger logit first, then lower id.
func (a weighed) before(b weighed) bool { return a.z > b.z || a.z == b.z && a.id < b.id }

// New returns a sampler for rows of vocab logits.
func New(vocab int) *Sampler {
	return &Sampler{z: make([]float32, vocab), counts: make([]int32, vocab)}
}

// Context is what a choice depends on beside the logits.
type Context struct {
	Prompt, Output []int32 // for penalties
	Forbidden      []int32 // ids that must not come out, such as stop tokens before min_tokens
	Seed           uint64
	Position       int // of the token to be chosen, counted from the prompt's first
}

// Pick chooses a token from logits [vocab], which it leaves as they are. Errors wrap ErrNotFinite.
func (s *Sampler) Pick(logits []float32, p *Params, c Context) (int32, error) {
	z := logits
	if p.shapes() || len(c.Forbidden) > 0 {
		// What is wrong with the model's logits must not be hidden by a bias.
		if _, _, err := argmax(logits); err != nil {
			return 0, err
		}
		z = s.shape(logits, p, c)
	}
	best, bestZ, err := argmax(z)
	if err != nil || p.Greedy() {
		return best, err
	}
	t := float64(p.Temperature)
	cand := s.candidates(z, bestZ, p)
	if p.TopP > 0 && p.TopP < 1 {
		cand = s.nucleus(cand, bestZ, t, float64(p.TopP))
	}
	return draw(cand, bestZ, t, newStream(c.Seed, c.Position)), nil
}

// shape returns a copy of logits with bias, bans and penalties.
func (s *Sampler) shape(logits []float32, p *Params, c Context) []float32 {
	z := s.z[:len(logits)]
	copy(z, logits)
	for _, b := range p.LogitBias {
		z[b.ID] += b.Value
	}
	if p.repeats() {
		for _, seen := range [2][]int32{c.Prompt, c.Output} {
			for _, id := range seen {
				if s.counts[id] != 0 {
					continue // once, however often the id was seen
				}
				s.counts[id] = 1
				if z[id] > 0 {
					z[id] /= p.RepetitionPenalty
				} else {
					z[id] *= p.RepetitionPenalty
				}
			}
		}
		s.clear(c.Prompt)
		s.clear(c.Output)
	}
	if p.PresencePenalty != 0 || p.FrequencyPenalty != 0 {
		for _, id := range c.Output {
			s.counts[id]++
		}
		for _, id := range c.Output {
			if n := s.counts[id]; n > 0 {
				z[id] -= float32(p.FrequencyPenalty*float32(n)) + p.PresencePenalty
				s.counts[id] = 0
			}
		}
	}
	// A penalty of 1e-38 must not make an infinity of a logit: that would fail the request as if the model had.
	for i, v := range z {
		if isInf(v) && !isInf(logits[i]) {
			z[i] = float32(math.Copysign(math.MaxFloat32, float64(v)))
		}
	}
	for _, id := range c.Forbidden {
		if int(id) < len(z) {
			z[id] = float32(math.Inf(-1))
		}
	}
	return z
}

func (s *Sampler) clear(ids []int32) {
	for _, id := range ids {
		s.counts[id] = 0
	}
}

// candidates returns the ids that top-k and min-p leave, in no particular order but the same for the same logits. Min-p
// compares with the best one, so it may come before top-p.
func (s *Sampler) candidates(z []float32, best float32, p *Params) []weighed {
	floor := math.Inf(-1)
	if p.MinP > 0 {
		floor = float64(best) + float64(p.Temperature)*math.Log(float64(p.MinP))
	}
	h := s.heap[:0]
	k := p.TopK
	if k <= 0 || k >= len(z) {
		for i, v := range z {
			if f := float64(v); f >= floor && !math.IsInf(f, -1) {
				h = append(h, weighed{int32(i), v})
			}
		}
		s.heap = h
		return h
	}
	// A heap of the k best with the worst of them at the root: most ids fail one comparison with it.
	for i, v := range z {
		w := weighed{int32(i), v}
		if f := float64(v); f < floor || math.IsInf(f, -1) || len(h) == k && !w.before(h[0]) {
			continue
		}
		if len(h) < k {
			h = append(h, w)
			if len(h) == k {
				heapify(h, worse)
			}
			continue
		}
		h[0] = w
		sink(h, 0, worse)
	}
	s.heap = h
	return h
}

// nucleus returns the best candidates whose share of the weights reaches topP, best first.
func (s *Sampler) nucleus(cand []weighed, best float32, t, topP float64) []weighed {
	sum := 0.0
	for _, w := range cand {
		sum += weight(w, best, t)
	}
	heapify(cand, better)
	kept := s.kept[:0]
	for reached := 0.0; len(cand) > 0; {
		w := cand[0]
		kept = append(kept, w)
		if reached += weight(w, best, t); reached >= topP*sum {
			break
		}
		cand[0] = cand[len(cand)-1]
		cand = cand[:len(cand)-1]
		sink(cand, 0, better)
	}
	s.kept = kept
	return kept
}

func weight(w weighed, best float32, t float64) float64 {
	return expNeg((float64(w.z) - float64(best)) / t)
}
