package moe

import (
	"fmt"

	"github.com/weftgo/weft/comm"
)

// A reduction is where the partial rows of the ranks are added: exactly once in a layer.
type reduction uint8

const (
	allReduce      reduction = iota // dp = 1: all ranks have all rows
	combine                         // of the exchanger
	reduceScatterV                  // dp > 1 without ep
)

func (r reduction) String() string {
	return [...]string{"one all_reduce", "combine of the exchanger", "one reduce_scatterv"}[r]
}

// A choice is what New decides once: it follows from Config, the size of the group and its kind of device alone.
type choice struct {
	exchange  bool // an exchanger is needed; else none may be given
	whole     bool // experts are whole, else slices
	reduction reduction
	shared    sharing
	why       string // why the exchanger and the reduction are so
}

// sharing says what a rank has of the shared experts.
type sharing uint8

const (
	noShared     sharing = iota
	sharedWhole          // on the rank's own rows, added by Combine
	sharedSliced         // over all ranks, inside the one reduction
)

func (s sharing) String() string {
	return [...]string{"none", "whole on own rows, bias of combine", "sliced over all ranks, inside the reduction"}[s]
}

// choose is the gate. It returns an error with the reason when no combination fits.
func choose(cfg Config, size int, device comm.Kind) (c choice, err error) {
	if err := cfg.Validate(); err != nil {
		return c, err
	}
	if n := cfg.Parallel.Size(); n != size {
		return c, fmt.Errorf("moe: tp %d x dp %d are %d ranks, the group has %d", cfg.Parallel.TP, cfg.Parallel.DP, n, size)
	}
	if device != comm.CPU {
		return c, fmt.Errorf("moe: no experts kernel for the ranks' device; open the world with the CPU driver")
	}
	c.whole = cfg.Parallel.EP
	switch {
	case cfg.Parallel.UseExchange():
		c.exchange, c.reduction = true, combine
		c.why = "dp > 1 with ep: ranks have rows and experts of their own"
	case cfg.Parallel.DP > 1:
		c.reduction = reduceScatterV
		c.why = "dp > 1 without ep: every rank has rows of its own and a slice of every expert, so rows are gathered"
	case size == 1:
		c.reduction = allReduce
		c.why = "one rank has all rows and all experts"
	case cfg.Parallel.EP:
		c.reduction = allReduce
		c.why = "dp = 1: every rank has all rows, and whole experts of its own"
	default:
		c.reduction = allReduce
		c.why = "dp = 1: every rank has all rows, and a slice of every expert"
	}
	if cfg.SharedIntermediate > 0 {
		c.shared = sharedSliced
		if c.exchange {
			c.shared = sharedWhole
		}
	}
	return c, nil
}
