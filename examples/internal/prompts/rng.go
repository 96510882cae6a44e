package prompts

// Rng is splitmix64, a generator of 64-bit numbers that is three lines in any
// language. The zero value is the generator of seed 0. One goroutine uses an
// Rng at a time.
type Rng struct{ state uint64 }

// NewRng returns the generator that starts from seed.
func NewRng(seed uint64) *Rng { return &Rng{state: seed} }

// Next returns the next number of the sequence.
func (r *Rng) Next() uint64 {
	r.state += 0x9E3779B97F4A7C15
	z := r.state
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// Below returns a number in [0, n), for n from 1 to 2^32 - 1. It takes exactly
// one Next, also for n = 1.
func (r *Rng) Below(n int) int {
	return int(r.Next() >> 32 * uint64(n) >> 32)
}

// pick returns one of items, by one draw.
func (r *Rng) pick(items []string) string { return items[r.Below(len(items))] }

// draw returns k distinct items in drawn order: the first k steps of a
// Fisher-Yates shuffle of a copy, so it takes k draws.
func (r *Rng) draw(items []string, k int) []string {
	deck := append([]string(nil), items...)
	for i := range k {
		j := i + r.Below(len(deck)-i)
		deck[i], deck[j] = deck[j], deck[i]
	}
	return deck[:k]
}
