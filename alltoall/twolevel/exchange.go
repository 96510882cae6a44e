package twolevel

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels/exchange"
	"github.com/weftgo/weft/routing"
)

// Exchange is one rank's end. It implements [ep.Exchanger] and [ep.Meter].
type Exchange struct {
	*exchange.Core
	inside, between    *comm.Comm
	grid               *grid
	hands              hands
	node, local        int // this rank's
	nodes, ranks, size int
	perRank            int // codes of a rank: the most experts of any
	relayTable         *routing.Table
	none               *routing.Plan // of no tokens
	banks              []*bank
	counts             counts
	parts              [4]comm.Part
	given              [][]int32 // lists, on their way
	op                 comm.Op   // of Combine

	nodeCopies, crossNodeCopies atomic.Int64
}

// New is collective over all ranks of all nodes. inside are the ranks of this rank's node; between are the ranks with its number in
// their nodes, one a node, in the same order on all. nodes.Levels of package comm/nodes gives both. In errors and in cfg.Placement
// a rank is its node's number x (ranks of a node) + its number inside. It returns an Invalid error on all ranks if a rank's cfg
// is wrong or differs from the others'.
func New(ctx context.Context, inside, between *comm.Comm, cfg ep.Config) (*Exchange, error) {
	if ctx.Err() != nil {
		return nil, comm.Errorf("alltoall", inside.WorldRank(), comm.Aborted, "before the ranks compared their configurations: %w", context.Cause(ctx))
	}
	if inside.Device().Kind != comm.CPU && (inside.World() == nil || inside.World() != between.World()) {
		return nil, comm.Errorf("alltoall", inside.WorldRank(), comm.Unavailable, "on a GPU both levels must share a stream, as those of nodes.Levels do")
	}
	g := newGrid(inside, between)
	if err := g.check(ctx); err != nil {
		return nil, err
	}
	core, err := exchange.NewCore(ctx, g.all, "alltoall", cfg, refuse)
	if err != nil {
		return nil, err
	}
	x := &Exchange{Core: core, inside: inside, between: between, grid: g, node: between.Rank(), local: inside.Rank(),
		nodes: between.Size(), ranks: inside.Size(), size: g.all.Size(), perRank: max(1, core.Cfg.Placement.NumLocal(0)),
		none: core.Table.NewPlan(g.all.Rank())}
	if x.relayTable, err = routing.NewTable(routing.Placement{NumExperts: x.ranks * x.perRank, Size: x.ranks}); err != nil {
		return nil, comm.Errorf("alltoall", g.all.WorldRank(), comm.Invalid, "codes of %d ranks of a node x %d experts: %w", x.ranks, x.perRank, err)
	}
	x.counts = newCounts(x.nodes, x.ranks)
	x.hands = host{x}
	for _, b := range core.Banks() {
		x.banks = append(x.banks, x.newBank(b))
	}
	if core.Dev != nil {
		if x.hands, err = newDevice(x); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// relayRows is the most rows that a rank relays.
func (x *Exchange) relayRows() int { return relayRows(x.Cfg, x.nodes) }

func relayRows(cfg ep.Config, nodes int) int {
	return min(cfg.MaxRecvRows, nodes*cfg.MaxTokensPerRank)
}

// Stats returns a snapshot; see [ep.Meter].
func (x *Exchange) Stats() ep.Stats {
	s := x.HostStats()
	s.NumNodeCopies, s.NumCrossNodeCopies = x.nodeCopies.Load(), x.crossNodeCopies.Load()
	return s
}

// Bytes returns the most memory that one rank's exchanger uses between so many nodes of so many ranks, as Config.Bytes does for
// one level.
func Bytes(cfg ep.Config, nodes, ranks int) (symmetric, private int64) {
	symmetric, private = cfg.Bytes(nodes * ranks)
	cfg = cfg.WithDefaults(nodes * ranks)
	hidden, k, elem := int64(cfg.Hidden), int64(cfg.TopK), int64(cfg.DType.Size())
	scale, scales := cfg.Scales()
	row := int64(cfg.WireCols*cfg.Wire.Size()+max(scales, 1)*scale.Size()) + 8*k
	relay := int64(relayRows(cfg, nodes))
	copies := relay * int64(min(ranks, cfg.TopK)) // what a relay sends on
	back, sums := copies, relay
	if cfg.RankInvariant {
		back, sums = relay*k, relay*k
	}
	more := (relay+copies)*row + (back+sums)*hidden*elem
	return symmetric + more*int64(cfg.Banks), private
}

// Dispatch sends each row once to each node that has one of its experts, and there once to each rank that has; see
// [ep.Exchanger].
func (x *Exchange) Dispatch(s comm.Stream, rows comm.Buffer, r ep.Routing) (*ep.Received, error) {
	if !x.Closed() {
		if err := x.hands.begin(s, "dispatch"); err != nil {
			return nil, err
		}
	}
	batch, cause, fatal := x.hands.read(s, rows, r)
	if fatal != nil {
		return nil, fatal
	}
	free := 0
	if cause == nil {
		free, cause = x.Free()
	}
	b := x.banks[free]
	dropped, err := x.settle(s, b, batch, cause)
	if err != nil {
		return nil, err
	}
	if err := x.hands.prepare(s, b); err != nil {
		return nil, err
	}
	meta, err := x.cross(s, b, batch)
	if err != nil {
		return nil, err
	}
	if err := x.fan(s, b, meta); err != nil {
		return nil, err
	}
	got, err := x.hands.receive(s, b, batch, dropped)
	if err != nil {
		return nil, err
	}
	b.tokens = batch.NumTokens
	if err := x.prepareReturn(s, b, batch); err != nil {
		got.Release()
		return nil, err
	}
	x.Count(b.Bank, batch.NumTokens, b.out.numPairs, b.out.numPairs-int(b.out.pairs[x.Comm.Rank()]), b.plan.DroppedIDs, dropped)
	copies := b.out.numCopies()
	x.nodeCopies.Add(int64(copies))
	x.crossNodeCopies.Add(int64(copies - b.out.counts[x.node]))
	return got, nil
}

// Close frees this rank's memory; see [ep.Exchanger].
func (x *Exchange) Close(ctx context.Context) error {
	if x.Dev != nil && !x.Closed() {
		_ = x.Comm.Wait(ctx, comm.Stream{}) // for this rank's own work; in a dead world that has left
	}
	return x.Core.Close(ctx)
}

// settle makes b's plan and the counts that all ranks agree on. cause, when not nil, is why this rank refuses its call. It
// returns how many (token, rank) copies of this rank are left out.
func (x *Exchange) settle(s comm.Stream, b *bank, batch exchange.Batch, cause error) (dropped int, err error) {
	plan, c := x.none, &x.counts
	if cause == nil {
		plan = b.plan
		cause = plan.Build(batch.IDs, x.Cfg.TopK)
	}
	if cause == nil {
		b.out.build(plan)
		c.give(&b.out)
	} else {
		c.refuse()
	}
	err = x.hands.agree(s, c)
	if cause != nil && (err == nil || errors.Is(err, comm.Aborted)) { // aborted: ranks that heard of it first have left
		return 0, cause
	}
	if err != nil {
		return 0, err
	}
	if peer := c.refuser(); peer >= 0 {
		return 0, x.Refused(peer)
	}
	if dropped, err = x.fit(s, b); err != nil {
		return 0, err
	}
	b.settled(c, x.node, x.local)
	return dropped, nil
}

// fit applies MaxRecvRows to the counts, the same way on every rank: first to what each receives, then to what each relays.
func (x *Exchange) fit(s comm.Stream, b *bank) (dropped int, err error) {
	c, limit := &x.counts, x.Cfg.MaxRecvRows
	before := b.out.numPairs
	dst, rows := c.fullest()
	relay, relayed := c.fullestRelay()
	if x.Cfg.Overflow == ep.Fail {
		switch {
		case rows > limit:
			return 0, x.Invalid("dispatch: rank %d would receive %d rows > MaxRecvRows %d; raise it, or set Overflow to Drop", x.WorldRank(dst), rows, limit)
		case relayed > limit:
			return 0, x.Invalid("dispatch: rank %d would relay %d rows > MaxRecvRows %d; raise it, or set Overflow to Drop", x.WorldRank(relay), relayed, limit)
		}
		return 0, nil
	}
	if rows > limit {
		c.clip(limit)
		b.plan.Keep(c.row(x.Comm.Rank()))
		b.out.build(b.plan)
		c.give(&b.out)
		if err := x.hands.agree(s, c); err != nil {
			return 0, err
		}
		_, relayed = c.fullestRelay()
	}
	if relayed > limit {
		c.clipRelay(limit)
		b.out.keep(c.toNodes(x.Comm.Rank()))
		c.give(&b.out)
		if err := x.hands.agree(s, c); err != nil {
			return 0, err
		}
	}
	return before - b.out.numPairs, nil
}

var (
	_ ep.Exchanger = (*Exchange)(nil)
	_ ep.Meter     = (*Exchange)(nil)
)

func refuse(cfg ep.Config) error {
	if cfg.LowLatency {
		return errors.New("LowLatency is not built between nodes; leave it out")
	}
	return nil
}
