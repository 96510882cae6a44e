package main

import (
	"math/rand/v2"

	"github.com/weftgo/weft/moe"
)

// model is the whole layer's weights, as a checkpoint has them.
type model struct {
	router  []float32
	experts []moe.Expert
	shared  moe.Expert
}

func newModel() *model {
	rng := rand.New(rand.NewPCG(2, 2))
	ffn := func(width int) moe.Expert {
		n := width * layer.Hidden
		return moe.Expert{Gate: normal(rng, n, 0.1), Up: normal(rng, n, 0.1), Down: normal(rng, n, 0.1)}
	}
	m := &model{router: normal(rng, layer.NumExperts*layer.Hidden, 0.1), shared: ffn(layer.SharedIntermediate)}
	for range layer.NumExperts {
		m.experts = append(m.experts, ffn(layer.Intermediate))
	}
	return m
}

func normal(rng *rand.Rand, n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * scale)
	}
	return x
}

// weights gives a rank what it must have: which experts, and which part of each, cfg says.
func (m *model) weights(cfg moe.Config, rank int) moe.Weights {
	return moe.Weights{
		Router: m.router,
		Expert: func(local int) (moe.Expert, error) {
			lo, hi := cfg.ExpertSlice(rank)
			return slice(m.experts[cfg.LocalExpert(rank, local)], cfg.Intermediate, lo, hi), nil
		},
		Shared: func() (moe.Expert, error) {
			lo, hi := cfg.SharedSlice(rank)
			return slice(m.shared, cfg.SharedIntermediate, lo, hi), nil
		},
	}
}

// slice returns columns [lo, hi) of an expert's width: rows of gate and up, columns of down.
func slice(e moe.Expert, width, lo, hi int) moe.Expert {
	s := moe.Expert{Gate: e.Gate[lo*layer.Hidden : hi*layer.Hidden], Up: e.Up[lo*layer.Hidden : hi*layer.Hidden]}
	for row := range layer.Hidden {
		s.Down = append(s.Down, e.Down[row*width+lo:row*width+hi]...)
	}
	return s
}
