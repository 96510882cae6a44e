package sampling

import "math"

// draw chooses among candidates by the Gumbel-max rule: to each logit divided by the temperature t comes noise g = -log(-log u)
// that belongs to (seed, position, id), and the largest sum wins. That is a draw from the softmax (Gumbel 1954; Maddison, Tarlow and
// Minka 2014). No sum over candidates is involved, so two sets of logits that differ by rounding, as those of two layouts do, give
// the same token unless the two best sums are as close as the rounding; and which other ids a filter left does not matter.
// Ties go to the lower id.
func draw(cand []weighed, best float32, t float64, noise stream) int32 {
	top := noise.sum(cand[0], best, t)
	id := cand[0].id
	for _, w := range cand[1:] {
		d := (float64(w.z) - float64(best)) / t
		if d+maxGumbel < top {
			continue
		}
		// With e = -log u the sum is d - log e, and e >= 1-u. So it takes 1-u < exp(d-top) to win, and most ids are out by the first
		// terms of exp's series, without a logarithm.
		u := noise.uniform(w.id)
		if y := top - d; y > 0 && (1-u)*(1+y*(1+y*(1./2+y*(1./6)))) > 1 {
			continue
		}
		if x := d + gumbel(u); x > top || x == top && w.id < id {
			top, id = x, w.id
		}
	}
	return id
}

// stream is the noise of one draw: a counter-based generator, whose number for an id does not depend on what was asked before.
type stream uint64

// newStream returns the noise of a seed and a position.
func newStream(seed uint64, position int) stream {
	return stream(splitMix(splitMix(seed) + uint64(position)))
}

// uniform returns the number of an id, in (0, 1): an odd multiple of 2^-53, so that both it and 1 minus it are exact.
func (s stream) uniform(id int32) float64 {
	return (float64(splitMix(uint64(s)+uint64(id)*golden)>>12) + 0.5) / (1 << 52)
}

// sum is what the id of w competes with.
func (s stream) sum(w weighed, best float32, t float64) float64 {
	return (float64(w.z)-float64(best))/t + gumbel(s.uniform(w.id))
}

func gumbel(u float64) float64 { return -math.Log(-math.Log(u)) }

// maxGumbel is more than gumbel gives for any number of uniform: 53 log 2.
const maxGumbel = 37

const golden = 0x9e3779b97f4a7c15

// splitMix is one step of SplitMix64 (Steele, Lea and Flood 2014): the n-th number of the stream that begins at s is splitMix(s + n golden).
func splitMix(x uint64) uint64 {
	x += golden
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
