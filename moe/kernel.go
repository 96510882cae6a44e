package moe

import (
	"fmt"

	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// A kernel is the exchanger, if there is one, and the experts implementation that fits it.
type kernel struct {
	exchanger  ep.Exchanger // nil for none
	experts    *experts
	numLocal   int
	numExperts int
	fullWidth  int
	expertRows bool // y is one row for each slot; else partial rows
}

func newKernel(cfg Config, rank int, w Weights, x ep.Exchanger) (k kernel, err error) {
	k = kernel{exchanger: x, numLocal: cfg.NumLocalExperts(rank), numExperts: cfg.NumExperts, fullWidth: cfg.Intermediate,
		expertRows: x != nil && cfg.Exchange().Output == ep.ExpertRows}
	lo, hi := cfg.ExpertSlice(rank)
	list := make([]ffn, k.numLocal)
	for i := range list {
		e, err := w.Expert(i)
		if err == nil {
			list[i], err = packFFN(e, hi-lo, cfg.Hidden)
		}
		if err != nil {
			return k, fmt.Errorf("moe: rank %d, local expert %d (expert %d, columns [%d, %d) of %d): %w",
				rank, i, cfg.LocalExpert(rank, i), lo, hi, cfg.Intermediate, err)
		}
	}
	k.experts = newExperts(cfg.Hidden, cfg.TopK, hi-lo, list)
	return k, nil
}

func (k *kernel) exchangerName() string {
	if k.exchanger == nil {
		return "none"
	}
	return k.exchanger.Name()
}

// String describes the experts.
func (k *kernel) String() string {
	output := "partial rows"
	if k.expertRows {
		output = "expert rows"
	}
	return fmt.Sprintf("%d of %d, width %d of %d, f32 grouped products to %s", k.numLocal, k.numExperts, k.experts.width, k.fullWidth, output)
}

// checkExchanger refuses an exchanger that is missing, not needed or made for something else.
func checkExchanger(cfg Config, c choice, size int, x ep.Exchanger) error {
	if !c.exchange {
		if x != nil {
			return fmt.Errorf("moe: exchanger %s given, but %v needs none (%s)", x.Name(), cfg.Parallel, c.why)
		}
		return nil
	}
	if x == nil {
		return fmt.Errorf("moe: %v needs an exchanger (%s); make one with Config.Exchange", cfg.Parallel, c.why)
	}
	want, have := cfg.Exchange().WithDefaults(size), x.Config().WithDefaults(size)
	for _, f := range []struct {
		name       string
		want, have any
	}{
		{"hidden", want.Hidden, have.Hidden}, {"NumExperts", want.NumExperts, have.NumExperts}, {"TopK", want.TopK, have.TopK},
		{"DType", want.DType, have.DType}, {"Layout", want.Layout, have.Layout}, {"Output", want.Output, have.Output},
		{"RankInvariant", want.RankInvariant, have.RankInvariant}, {"Placement", fmt.Sprint(want.Placement), fmt.Sprint(have.Placement)},
	} {
		if f.want != f.have {
			return fmt.Errorf("moe: exchanger %s was made with %s %v, the layer needs %v; use Config.Exchange", x.Name(), f.name, f.have, f.want)
		}
	}
	if have.MaxTokensPerRank < cfg.MaxTokens {
		return fmt.Errorf("moe: exchanger %s was made for MaxTokensPerRank %d, the layer for MaxTokens %d", x.Name(), have.MaxTokensPerRank, cfg.MaxTokens)
	}
	if have.Quantised {
		return fmt.Errorf("moe: exchanger %s takes rows that are quantised; the layer dispatches f32", x.Name())
	}
	if have.Wire != dtype.F32 && have.Wire != dtype.F8E4M3 {
		return fmt.Errorf("moe: exchanger %s sends %v; the experts take f32, or f8e4m3 with scales", x.Name(), have.Wire)
	}
	return nil
}

// checkWeights refuses weights of another shape, before any is packed.
func checkWeights(cfg Config, w Weights) error {
	if n := cfg.NumExperts * cfg.Hidden; len(w.Router) != n {
		return fmt.Errorf("moe: the router has %d values; %d experts x hidden %d are %d", len(w.Router), cfg.NumExperts, cfg.Hidden, n)
	}
	if w.Bias != nil && len(w.Bias) != cfg.NumExperts {
		return fmt.Errorf("moe: a score-correction bias of %d values for %d experts", len(w.Bias), cfg.NumExperts)
	}
	if w.Expert == nil {
		return fmt.Errorf("moe: Weights.Expert is nil")
	}
	if (w.Shared != nil) != (cfg.SharedIntermediate > 0) {
		return fmt.Errorf("moe: SharedIntermediate %d, and Weights.Shared given: %t", cfg.SharedIntermediate, w.Shared != nil)
	}
	return nil
}
