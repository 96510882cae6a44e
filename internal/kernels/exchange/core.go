package exchange

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/routing"
)

// Core is what both strategies share: the configuration, the banks, the counters and the row loops.
type Core struct {
	Comm     *comm.Comm
	Cfg      ep.Config
	Table    *routing.Table
	NumLocal int // experts of this rank

	Partials  Partials
	Sums      Sums
	Gatherer  Gatherer
	Quantiser Quantiser

	Dev *Device // nil on the CPU

	name   string
	ranks  []int // [size]: each rank's number in the world, which errors name
	banks  []*Bank
	closed bool

	numReceived uint64

	mu    sync.Mutex
	stats ep.Stats
}

// NewCore is collective: it fills in cfg and checks that all ranks gave the same. refuse is the strategy's own reason to
// refuse cfg, called with defaults filled in. A configuration that is wrong on one rank is an Invalid error on all.
func NewCore(ctx context.Context, c *comm.Comm, name string, cfg ep.Config, refuse func(ep.Config) error) (*Core, error) {
	if ctx.Err() != nil {
		return nil, comm.Errorf(name, c.WorldRank(), comm.Aborted, "before the ranks compared their configurations: %w", context.Cause(ctx))
	}
	filled, err := cfg.Fill(c.Size())
	if err == nil {
		err = refuse(filled)
	}
	ranks, err := agree(ctx, c, name, filled, err)
	if err != nil {
		return nil, err
	}
	table, err := routing.NewTable(filled.Placement)
	if err != nil {
		return nil, invalid(name, c.WorldRank(), err)
	}
	x := &Core{Comm: c, Cfg: filled, Table: table, NumLocal: filled.Placement.NumLocal(c.Rank()), name: name, ranks: ranks}
	x.stats.ExpertTokens = make([]int64, x.NumLocal)
	for range filled.Banks {
		x.banks = append(x.banks, newBank(x))
	}
	if c.Device().Kind != comm.CPU {
		if x.Dev, err = newDevice(x); err != nil {
			return nil, &comm.Error{Op: name, Rank: c.WorldRank(), Peer: comm.NoPeer, Code: comm.Unavailable, Err: err}
		}
	}
	return x, nil
}

// agree compares a hash of the configuration over all ranks and returns their numbers in the world. mine, when not nil, is
// why this rank cannot go on.
func agree(ctx context.Context, c *comm.Comm, name string, cfg ep.Config, mine error) (ranks []int, err error) {
	all := make([]int64, 2*c.Size()) // a hash, 0 for a refusal, and the rank in the world
	own := []int64{0, int64(c.WorldRank())}
	if mine == nil {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s %+v", name, cfg)
		own[0] = int64(h.Sum64() | 1)
	}
	err = GatherWords(ctx, c, all, own)
	if mine != nil && (err == nil || errors.Is(err, comm.Aborted)) { // aborted: ranks that heard of it first have left
		return nil, invalid(name, c.WorldRank(), mine)
	}
	if err != nil {
		return nil, err
	}
	for r := range c.Size() {
		rank := int(all[2*r+1])
		if all[2*r] == 0 {
			return nil, &comm.Error{Op: name, Rank: c.WorldRank(), Peer: rank, Code: comm.Invalid,
				Err: fmt.Errorf("rank %d refused its configuration; its own error says why", rank)}
		}
		ranks = append(ranks, rank)
	}
	for r := range ranks {
		if all[2*r] == all[0] {
			continue
		}
		peer := ranks[r]
		if r == c.Rank() {
			peer = ranks[0]
		}
		return nil, &comm.Error{Op: name, Rank: c.WorldRank(), Peer: peer, Code: comm.Invalid,
			Err: fmt.Errorf("ranks %d and %d gave different configurations, and all must give the same; rank %d has %+v",
				ranks[0], ranks[r], c.WorldRank(), cfg)}
	}
	return ranks, nil
}

func invalid(op string, rank int, err error) error {
	return &comm.Error{Op: op, Rank: rank, Peer: comm.NoPeer, Code: comm.Invalid, Err: err}
}

// Invalid makes this rank's Invalid error of a formatted text.
func (x *Core) Invalid(format string, args ...any) error {
	return invalid(x.name, x.Comm.WorldRank(), fmt.Errorf(format, args...))
}

// WorldRank returns the number in the world of a rank of the group, which errors name.
func (x *Core) WorldRank(rank int) int { return x.ranks[rank] }

// Refused is the Invalid error of a rank whose own call was fine, naming the one of the group whose was not.
func (x *Core) Refused(rank int) error {
	peer := x.WorldRank(rank)
	return &comm.Error{Op: x.name, Rank: x.Comm.WorldRank(), Peer: peer, Code: comm.Invalid,
		Err: fmt.Errorf("dispatch: rank %d refused its call, so nothing was exchanged; its own error says why", peer)}
}

// Config returns the configuration with defaults filled in.
func (x *Core) Config() ep.Config { return x.Cfg }

// Name returns the strategy's name.
func (x *Core) Name() string { return x.name }

// Stats returns a snapshot. On the CPU any goroutine may call it; on a GPU it waits for the rank's work, and only the rank's
// goroutine may.
func (x *Core) Stats() ep.Stats {
	if x.Dev != nil {
		return x.Dev.stats()
	}
	return x.HostStats()
}

// HostStats is Stats of what Count counted, on a GPU too where the host plans.
func (x *Core) HostStats() ep.Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.stats
	s.ExpertTokens = slices.Clone(s.ExpertTokens)
	return s
}

// Close frees the banks. A second call does nothing.
func (x *Core) Close(ctx context.Context) error {
	if x.closed {
		return nil
	}
	x.closed = true
	var first error
	for _, b := range x.banks {
		if b.live != nil {
			b.live.Release()
		}
		for _, m := range b.memory {
			if err := m.free(x.Comm); err != nil && first == nil {
				first = err
			}
		}
	}
	if x.Dev != nil {
		first = errors.Join(first, x.Dev.close(ctx))
	}
	return first
}

// Closed reports whether Close was called.
func (x *Core) Closed() bool { return x.closed }

// Batch is one Dispatch's input, checked.
type Batch struct {
	NumRows   int         // rows of x
	NumTokens int         // of which so many count
	X         comm.Buffer // [NumTokens, hidden]; on a GPU [NumRows, hidden], and NumTokens is NumRows or, when it is on the device, -1
	Scales    comm.Buffer // of the caller's quantised rows, as many as X; else the zero Buffer
	IDs       []int32     // [NumTokens, topK]
	Weights   []float32   // [NumTokens, topK]
}

// Check reports what is wrong with a Dispatch's arguments on this rank.
func (x *Core) Check(rows comm.Buffer, r ep.Routing) (Batch, error) {
	if err := x.shapes(rows, r); err != nil {
		return Batch{}, err
	}
	n := rows.Rows()
	tokens := n
	if !r.NumTokens.IsZero() {
		if x.Dev != nil {
			return Batch{NumRows: n, NumTokens: -1, X: rows, Scales: r.Scales}, nil
		}
		if tokens = int(comm.Row[int32](r.NumTokens, 0)[0]); tokens < 0 || tokens > n {
			return Batch{}, x.Invalid("dispatch: NumTokens %d is not in [0, %d], the rows of x", tokens, n)
		}
	}
	if tokens > x.Cfg.MaxTokensPerRank {
		return Batch{}, x.Invalid("dispatch: %d tokens > MaxTokensPerRank %d", tokens, x.Cfg.MaxTokensPerRank)
	}
	if x.Dev != nil {
		return Batch{NumRows: n, NumTokens: tokens, X: rows, Scales: r.Scales}, nil
	}
	end := tokens * x.Cfg.TopK
	b := Batch{NumRows: n, NumTokens: tokens, X: rows.Slice(0, tokens), IDs: View[int32](r.IDs)[:end], Weights: View[float32](r.Weights)[:end]}
	if !r.Scales.IsZero() {
		b.Scales = r.Scales.Slice(0, tokens)
	}
	return b, nil
}

// shapes checks types and shapes.
func (x *Core) shapes(rows comm.Buffer, r ep.Routing) error {
	if x.closed {
		return x.Invalid("dispatch: the exchanger is closed")
	}
	typ, cols := x.Cfg.Input()
	if err := x.tensor("x", rows, typ, -1, cols); err != nil {
		return x.Invalid("dispatch: %w", err)
	}
	n := rows.Rows()
	if err := x.scales(r.Scales, n); err != nil {
		return x.Invalid("dispatch: %w", err)
	}
	if err := x.tensor("ids", r.IDs, dtype.I32, n, x.Cfg.TopK); err != nil {
		return x.Invalid("dispatch: %w", err)
	}
	if err := x.tensor("weights", r.Weights, dtype.F32, n, x.Cfg.TopK); err != nil {
		return x.Invalid("dispatch: %w", err)
	}
	if !r.IDs.Contiguous() || !r.Weights.Contiguous() {
		return x.Invalid("dispatch: ids %v and weights %v must have no gaps between rows", r.IDs, r.Weights)
	}
	if !r.NumTokens.IsZero() {
		if err := x.tensor("NumTokens", r.NumTokens, dtype.I32, 1, 1); err != nil {
			return x.Invalid("dispatch: %w", err)
		}
	}
	return nil
}

// scales checks the scales of the caller's quantised rows.
func (x *Core) scales(b comm.Buffer, rows int) error {
	if x.Cfg.ScaleBytes > 0 {
		return x.tensor("scales", b, dtype.U8, rows, x.Cfg.ScaleBytes)
	}
	if !b.IsZero() {
		return fmt.Errorf("scales are %v, and Config has Quantised %t with ScaleBytes 0", b, x.Cfg.Quantised)
	}
	return nil
}

// tensor checks type and shape; rows -1 means any.
func (x *Core) tensor(what string, b comm.Buffer, t dtype.DType, rows, cols int) error {
	if err := b.Validate(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if dev := x.Comm.Device(); b.Device().Kind != dev.Kind || dev.Kind != comm.CPU && b.Device() != dev {
		return fmt.Errorf("%s: %v is not on this rank's device %v", what, b, x.Comm.Device())
	}
	if b.DType() != t || b.Cols() != cols || rows >= 0 && b.Rows() != rows {
		if rows < 0 {
			return fmt.Errorf("%s is %v where %v[numTokens, %d] is needed", what, b, t, cols)
		}
		return fmt.Errorf("%s is %v where %v[%d, %d] is needed", what, b, t, rows, cols)
	}
	return nil
}
