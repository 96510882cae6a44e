package eptest

import (
	"fmt"
	"math/rand/v2"

	"github.com/weftgo/weft/ep"
)

// Step is what all ranks dispatch at once.
type Step struct {
	Name   string
	Tokens [][]float32 // [rank]: x [numTokens, hidden]
	IDs    [][]int32   // [rank]: [numTokens, topK]
	Weight [][]float32 // [rank]: [numTokens, topK]
	Bias   [][]float32 // [rank]: [numTokens, hidden]

	topK int
}

// draw chooses the experts of one token.
type draw func(rng *rand.Rand, ids []int32, numExperts int)

// distinct draws different experts where there are enough.
func distinct(rng *rand.Rand, ids []int32, numExperts int) {
	perm := rng.Perm(numExperts)
	for k := range ids {
		ids[k] = int32(perm[k%numExperts])
	}
}

// dirty draws ids of every kind: repeated, negative, too large.
func dirty(rng *rand.Rand, ids []int32, numExperts int) {
	odd := []int32{-1, -1 << 31, int32(numExperts), 1<<31 - 1, int32(numExperts) + 5}
	for k := range ids {
		ids[k] = int32(rng.IntN(numExperts))
		switch rng.IntN(4) {
		case 0:
			ids[k] = odd[rng.IntN(len(odd))]
		case 1:
			ids[k] = ids[0]
		}
	}
}

// one sends everything to one expert, as often as there are choices.
func one(_ *rand.Rand, ids []int32, numExperts int) {
	for k := range ids {
		ids[k] = int32(numExperts / 2)
	}
}

// none asks for no expert at all.
func none(_ *rand.Rand, ids []int32, _ int) {
	for k := range ids {
		ids[k] = -1
	}
}

// NewStep makes a step with tokens[r] tokens on rank r. Values are small integers, so that all sums are exact in every
// payload type. With an fp8 wire each group of 128 has one 448: the scale is then 1, and the others are exact too.
func NewStep(name string, cfg ep.Config, seed uint64, tokens []int, d draw) Step {
	s := Step{Name: name, topK: cfg.TopK}
	for r, n := range tokens {
		rng := rand.New(rand.NewPCG(seed, uint64(r)))
		x, bias := make([]float32, n*cfg.Hidden), make([]float32, n*cfg.Hidden)
		for i := range x {
			x[i], bias[i] = float32(rng.IntN(5)-2), float32(rng.IntN(7)-3)
			if cfg.NumScales() > 0 && i%cfg.Hidden%ep.ScaleGroup == 0 {
				x[i] = 448
			}
		}
		ids, w := make([]int32, n*cfg.TopK), make([]float32, n*cfg.TopK)
		for t := range n {
			d(rng, ids[t*cfg.TopK:(t+1)*cfg.TopK], cfg.NumExperts)
		}
		for i := range w {
			w[i] = float32(rng.IntN(3) + 1)
		}
		s.Tokens, s.Bias = append(s.Tokens, x), append(s.Bias, bias)
		s.IDs, s.Weight = append(s.IDs, ids), append(s.Weight, w)
	}
	return s
}

// expertOf is the stand-in for an expert: small integers stay small integers.
func expertOf(expert int, x float32) float32 { return float32(expert%3+1)*x + float32(expert%2) }

func (s Step) String() string { return fmt.Sprintf("%s %v", s.Name, s.numTokens()) }

func (s Step) numTokens() []int {
	n := make([]int, len(s.IDs))
	for r := range n {
		n[r] = len(s.IDs[r]) / s.topK
	}
	return n
}
