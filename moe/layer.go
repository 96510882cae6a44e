package moe

import (
	"context"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
)

// Expert is the weights of one expert, or of a slice of it: row-major as nn.Linear stores them.
type Expert struct {
	Gate, Up []float32 // [intermediate or its slice, hidden]
	Down     []float32 // [hidden, intermediate or its slice]
}

// Weights is what one rank holds of a layer. New copies it into the layout of the kernel; the slices may be reused after.
type Weights struct {
	Router []float32 // [numExperts, hidden], the same on every rank
	Bias   []float32 // [numExperts] score-correction bias, added to the scores for the choice only; nil means none
	// Expert returns expert number local of this rank: whole (EP) or this rank's slice of expert local (no EP). It is
	// called once for each, in order, so that a loader can read one at a time.
	Expert func(local int) (Expert, error)
	Shared func() (Expert, error) // the shared experts, whole or this rank's slice (SharedSlice); nil means none
}

// Layer is one MoE layer on one rank. One goroutine uses it at a time.
type Layer struct{}

// New makes the layer. It is collective over c, which holds all TP x DP ranks. x is the exchanger that
// cfg.Parallel.UseExchange asks for (made with ep.Config of cfg.Exchange), else nil.
func New(ctx context.Context, c *comm.Comm, cfg Config, w Weights, x ep.Exchanger) (*Layer, error) {
	panic("being written")
}

// Forward computes out [numTokens, hidden] from x [numTokens, hidden]: router, experts, weighted sum, shared experts; no
// residual. All ranks call it, also with zero tokens. With DP = 1 all ranks pass the same x and get the same out; with
// DP > 1 every rank passes rows of its own.
func (l *Layer) Forward(s comm.Stream, out, x comm.Buffer) error { panic("being written") }

// String says in one line what was chosen and why: exchanger, experts kernel, where the reduction is.
func (l *Layer) String() string { panic("being written") }
