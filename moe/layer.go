package moe

import (
	"context"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/trace"
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

// Layer is one MoE layer on one rank: which experts are here, a runner that routes and reduces, and a kernel that computes.
// One goroutine uses it at a time; Load may come from any.
type Layer struct {
	cfg    Config
	comm   *comm.Comm
	choice choice
	runner runner
	kernel kernel
	load   load
}

// New makes the layer. It is collective over c, which holds all TP x DP ranks, and checks that all ranks gave the same
// Config. x is the exchanger that cfg.Parallel.UseExchange asks for (made with ep.Config of cfg.Exchange), else nil; it
// stays the caller's to close. Combinations that do not fit are Invalid errors with the reason, on every rank.
func New(ctx context.Context, c *comm.Comm, cfg Config, w Weights, x ep.Exchanger) (*Layer, error) {
	if cfg.Workspace == nil {
		cfg.Workspace = new(Workspace)
	}
	choice, err := choose(cfg, c.Size(), c.Device().Kind)
	if err == nil {
		err = checkExchanger(cfg, choice, c.Size(), x)
	}
	if err == nil {
		err = checkWeights(cfg, w)
	}
	if err := agree(c, cfg, w, err); err != nil {
		return nil, err
	}
	l := &Layer{cfg: cfg, comm: c, choice: choice}
	if l.kernel, err = newKernel(cfg, c.Rank(), w, x); err != nil {
		return nil, err
	}
	if l.runner, err = newRunner(cfg, c, choice, w); err != nil {
		return nil, err
	}
	l.load.init(cfg, c.Rank())
	return l, context.Cause(ctx)
}

// Forward computes out [numTokens, hidden] from x [numTokens, hidden]: router, experts, weighted sum, shared experts; no
// residual. All ranks call it, also with zero tokens. With DP = 1 all ranks pass the same x and get the same out; with
// DP > 1 every rank passes rows of its own. The layer computes in F32; BF16 and F16 buffers are converted on the way in
// and rounded once on the way out. out overlapping x is an Invalid error.
func (l *Layer) Forward(s comm.Stream, out, x comm.Buffer) error {
	if err := l.check(out, x); err != nil {
		return err
	}
	ws := l.cfg.Workspace
	in, err := stageIn(&ws.x, x)
	if err != nil {
		return err
	}
	to := stageOut(&ws.out, out)
	switch l.choice.reduction {
	case allReduce:
		err = l.runner.allRows(s, l, to, in)
	case combine:
		err = l.runner.exchange(s, l, to, in)
	case reduceScatterV:
		err = l.runner.gather(s, l, to, in)
	}
	if err != nil {
		return fmt.Errorf("moe: %w", err)
	}
	return stageBack(out, to)
}

// String says in one line what was chosen and why: exchanger, experts kernel, where the reduction is.
func (l *Layer) String() string {
	return fmt.Sprintf("moe %v: exchanger %s (%s); experts %v; reduction %v; shared experts %v",
		l.cfg.Parallel, l.kernel.exchangerName(), l.choice.why, &l.kernel, l.choice.reduction, l.choice.shared)
}

// SetObserver makes f hear what the router chose in every later Forward (nil: nobody): ids and weights [numTokens, topK] of
// this rank's rows, valid during the call, which is on the rank's goroutine.
func (l *Layer) SetObserver(f func(ids []int32, weights []float32)) { l.runner.watch = f }

// SetLane makes later calls of Forward record spans of the router, the exchange and the experts on lane; nil records nothing.
func (l *Layer) SetLane(lane *trace.Lane) { l.runner.lane = lane }

// Routing returns what the router chose in the last Forward for the rows this rank passed: ids and weights
// [numTokens, topK], best first. The memory is the layer's, and valid until the next Forward with its Workspace.
func (l *Layer) Routing() (ids []int32, weights []float32) { return l.runner.ids, l.runner.weights }

func (l *Layer) check(out, x comm.Buffer) error {
	if err := l.checkBuffer("x", x); err != nil {
		return err
	}
	if err := l.checkBuffer("out", out); err != nil {
		return err
	}
	if out.Rows() != x.Rows() {
		return l.fail("out has %d rows, x %d", out.Rows(), x.Rows())
	}
	if out.Overlaps(x) {
		return l.fail("out %v overlaps x %v; the layer reads x while it writes out", out, x)
	}
	if x.Rows() > l.cfg.MaxTokens {
		return l.fail("%d tokens > MaxTokens %d", x.Rows(), l.cfg.MaxTokens)
	}
	return nil
}

// checkBuffer takes the buffer by value, so that a call allocates only when it fails.
func (l *Layer) checkBuffer(name string, b comm.Buffer) error {
	if err := b.Validate(); err != nil {
		return l.fail("%s: %v", name, err)
	}
	if b.Device().Kind != comm.CPU || b.Cols() != l.cfg.Hidden {
		return l.fail("%s is %v, the layer needs %d columns on the CPU", name, b, l.cfg.Hidden)
	}
	if t := b.DType(); t != dtype.F32 && t != dtype.BF16 && t != dtype.F16 {
		return l.fail("%s is %v; the layer takes f32, bf16 and f16", name, b)
	}
	return nil
}

func (l *Layer) fail(format string, a ...any) error {
	return comm.Errorf("moe forward", l.comm.WorldRank(), comm.Invalid, format, a...)
}
