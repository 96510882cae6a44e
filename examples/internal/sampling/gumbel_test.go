package sampling

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// chiSquare returns the statistic of counts against shares that sum to 1, and its degrees of freedom.
func chiSquare(counts []int, shares []float64) (x2 float64, freedom int) {
	n := 0
	for _, c := range counts {
		n += c
	}
	for i, p := range shares {
		if p == 0 {
			continue
		}
		want := p * float64(n)
		x2 += (float64(counts[i]) - want) * (float64(counts[i]) - want) / want
		freedom++
	}
	return x2, freedom - 1
}

// mostChiSquare is what the statistic stays below with a probability of about 1 - 1e-6 (Wilson and Hilferty 1931).
func mostChiSquare(freedom int) float64 {
	f := 2 / (9 * float64(freedom))
	x := 1 - f + 4.75*math.Sqrt(f)
	return float64(freedom) * x * x * x
}

// requireShares holds counts against shares.
func requireShares(t *testing.T, counts []int, shares []float64) {
	t.Helper()
	for i, p := range shares {
		if p == 0 {
			require.Zero(t, counts[i], "id %d has no share", i)
		}
	}
	x2, freedom := chiSquare(counts, shares)
	require.Less(t, x2, mostChiSquare(freedom), "%d degrees of freedom, counts %v", freedom, counts)
}

// Draws follow the softmax of what the filters leave: over positions of one seed, over seeds at one position, and over
// neighbouring seeds and positions together, whatever the temperature.
func TestDrawsAreASoftmax(t *testing.T) {
	z := []float32{0, 1, 2, -1, -inf, 2, 0.5, -3, 1.25, -0.5, 2.5, -6}
	s := New(len(z))
	const n = 60000
	for _, p := range []Params{{Temperature: 1}, {Temperature: 0.3}, {Temperature: 5}, {Temperature: 1, TopK: 5}, {Temperature: 1, TopP: 0.8},
		{Temperature: 0.7, MinP: 0.1}, {Temperature: 1.5, MinP: 0.05, TopK: 7, TopP: 0.9}} {
		shares := make([]float64, len(z))
		sum := 0.0
		for _, id := range kept(z, p) {
			shares[id] = math.Exp(float64(z[id]) / float64(p.Temperature))
			sum += shares[id]
		}
		for i := range shares {
			shares[i] /= sum
		}
		for name, at := range map[string]func(i int) Context{
			"positions": func(i int) Context { return Context{Seed: 3, Position: i} },
			"seeds":     func(i int) Context { return Context{Seed: uint64(i), Position: 17} },
			"both":      func(i int) Context { return Context{Seed: uint64(i / 50), Position: i % 50} },
			"far seeds": func(i int) Context { return Context{Seed: uint64(i) << 40, Position: 0} },
		} {
			t.Run(fmt.Sprintf("%s/%+v", name, p), func(t *testing.T) {
				counts := make([]int, len(z))
				for i := range n {
					id, err := s.Pick(z, &p, at(i))
					require.NoError(t, err)
					counts[id]++
				}
				requireShares(t, counts, shares)
			})
		}
	}
}

// The draws of neighbours do not depend on each other: pairs are as frequent as the product says. Neighbours are the
// next position, the next seed (the next choice of n), and the position after with the seed before.
func TestNeighboursAreIndependent(t *testing.T) {
	z := []float32{0, 0.7, -0.4, 1.1}
	sum := 0.0
	for _, v := range z {
		sum += math.Exp(float64(v))
	}
	shares := make([]float64, 16)
	for i := range shares {
		shares[i] = math.Exp(float64(z[i/4]+z[i%4])) / sum / sum
	}
	s, p := New(4), Params{Temperature: 1}
	pick := func(seed, position int) int {
		id, err := s.Pick(z, &p, Context{Seed: uint64(seed), Position: position})
		require.NoError(t, err)
		return int(id)
	}
	for name, d := range map[string][2]int{"position": {0, 1}, "seed": {1, 0}, "across": {-1, 1}} {
		t.Run(name, func(t *testing.T) {
			counts := make([]int, 16)
			for i := range 40000 {
				seed, position := 2+3*(i%200), 3*(i/200)
				counts[4*pick(seed, position)+pick(seed+d[0], position+d[1])]++
			}
			requireShares(t, counts, shares)
		})
	}
}

// What draw leaves out without a logarithm could not have won: the result is that of all sums.
func TestDrawAgainstAllSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "candidates")
		scale := rapid.SampledFrom([]float64{0, 0.01, 1, 10, 100}).Draw(t, "scale")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "logits"), 1))
		cand := make([]weighed, n)
		best := -inf
		for i := range cand {
			cand[i] = weighed{int32(i * 3), float32(rng.NormFloat64() * scale)}
			best = max(best, cand[i].z)
		}
		noise := newStream(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 1<<20).Draw(t, "position"))
		temperature := rapid.SampledFrom([]float64{1e-30, 0.1, 1, 3}).Draw(t, "temperature")
		want, top := int32(-1), math.Inf(-1)
		for _, w := range cand {
			if x := noise.sum(w, best, temperature); x > top {
				want, top = w.id, x
			}
		}
		require.Equal(t, want, draw(cand, best, temperature, noise))
		rng.Shuffle(n, func(i, j int) { cand[i], cand[j] = cand[j], cand[i] })
		require.Equal(t, want, draw(cand, best, temperature, noise), "the order of candidates does not matter")
		cand = slices.DeleteFunc(cand, func(w weighed) bool { return w.id != want && rng.IntN(2) == 0 })
		require.Equal(t, want, draw(cand, best, temperature, noise), "nor does what lost")
	})
}

// Logits that differ as those of two layouts do give the same token, unless the two tokens' sums are as close as the
// difference. Here half of the ids go up and half go down, by a hundred times what layouts differ by, so that the test sees some: two draws
// flip. (Inverting the distribution function at one number flips 705 of the same 20000.)
func TestRoundingFlipsTiesOnly(t *testing.T) {
	const vocab, draws, rounding = 2048, 20000, 1e-4
	rng := rand.New(rand.NewPCG(8, 1))
	z, other := make([]float32, vocab), make([]float32, vocab)
	for i := range z {
		z[i] = float32(rng.NormFloat64() * 2)
		other[i] = z[i] + float32(rounding*float64(1-2*(i*2/vocab)))
	}
	s, p := New(vocab), Params{Temperature: 1}
	flips := 0
	for i := range draws {
		c := Context{Seed: uint64(i % 100), Position: i}
		a, err := s.Pick(z, &p, c)
		require.NoError(t, err)
		b, err := s.Pick(other, &p, c)
		require.NoError(t, err)
		if a != b {
			flips++
			noise := newStream(c.Seed, c.Position)
			gap := noise.sum(weighed{a, z[a]}, 0, 1) - noise.sum(weighed{b, z[b]}, 0, 1)
			require.Less(t, math.Abs(gap), 2.1*rounding, "seed %d, position %d: %d or %d", c.Seed, c.Position, a, b)
		}
	}
	t.Logf("%d of %d draws flip", flips, draws)
	require.LessOrEqual(t, flips, 4, "twice the expected number")
}

// Extreme penalties shape finite logits; they are no fault of the model.
func TestExtremePenaltiesStayFinite(t *testing.T) {
	z := []float32{5, -5, 1, 0}
	for _, p := range []Params{{RepetitionPenalty: 1e-45}, {RepetitionPenalty: math.MaxFloat32}, {RepetitionPenalty: 1e-38, Temperature: 1e-45},
		{RepetitionPenalty: 1e-38, Temperature: 1, TopP: 1e-45}, {RepetitionPenalty: math.MaxFloat32, Temperature: math.MaxFloat32, MinP: 1}} {
		_, err := New(4).Pick(z, &p, Context{Prompt: []int32{0, 1, 2, 3}, Output: []int32{1}})
		require.NoError(t, err, "%+v", p)
	}
}
