package alltoall

import (
	"context"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels/exchange"
	"github.com/weftgo/weft/routing"
)

// host is the engine of the CPU.
type host struct {
	*exchange.Core
	banks  []*bank
	parts  [1]comm.Part
	op     comm.Op // of Combine
	matrix matrix
	none   *routing.Plan // of no tokens
}

func newHost(core *exchange.Core) *host {
	c := core.Comm
	x := &host{Core: core, matrix: newMatrix(c.Size()), none: core.Table.NewPlan(c.Rank())}
	for _, b := range core.Banks() {
		x.banks = append(x.banks, newBank(b, core, c))
	}
	return x
}

func (x *host) close(context.Context) error { return nil }

// bank is what alltoall keeps with a result.
type bank struct {
	*exchange.Bank
	plan               *routing.Plan
	send, recv         []int         // [size]: rows to and from each rank
	back               []int         // [size]: expert rows to return to each rank (RankInvariant)
	home               []int         // [size]: expert rows to come home from each rank (RankInvariant)
	q, qs              *exchange.Mem // this rank's rows and scales on an fp8 wire
	rows, scales, topW *exchange.Mem // packed by destination: [numCopies, .]
	returned           *exchange.Mem // DType [numCopies or numChoices, hidden]: what came back
	terms              terms
	parts              [4]comm.Part // what Dispatch moves
	numParts           int
	half               half
}

func newBank(b *exchange.Bank, core *exchange.Core, c *comm.Comm) *bank {
	cfg, size := core.Cfg, c.Size()
	scale, scales := cfg.Scales()
	scales = max(scales, 1)
	tokens, copies := cfg.MaxTokensPerRank, cfg.MaxCopies(size)
	returned := copies
	if cfg.RankInvariant {
		returned = tokens * cfg.TopK
	}
	return &bank{Bank: b, plan: core.Table.NewPlan(c.Rank()),
		send: make([]int, size), recv: make([]int, size), back: make([]int, size), home: make([]int, size),
		q: b.Own(cfg.Wire, cfg.Hidden, tokens), qs: b.Own(dtype.F32, scales, tokens),
		rows: b.Own(cfg.Wire, cfg.WireCols, copies), scales: b.Own(scale, scales, copies),
		topW:     b.Own(dtype.F32, cfg.TopK, copies),
		returned: b.Own(cfg.DType, cfg.Hidden, returned),
	}
}

func (x *host) dispatch(s comm.Stream, rows comm.Buffer, r ep.Routing) (*ep.Received, error) {
	batch, cause := x.Check(rows, r)
	if cause != nil && x.Closed() {
		return nil, cause
	}
	free, plan := 0, x.none
	if cause == nil {
		free, cause = x.Free()
	}
	if cause == nil {
		plan = x.banks[free].plan
		cause = plan.Build(batch.IDs, x.Cfg.TopK)
	}
	if err := x.matrix.exchange(s, x.Comm, plan, cause != nil); err != nil {
		return nil, err
	}
	if cause != nil {
		return nil, cause
	}
	if peer := x.matrix.refuser(); peer >= 0 {
		return nil, x.Refused(peer)
	}
	b := x.banks[free]
	dropped, err := x.fit(plan)
	if err != nil {
		return nil, err
	}
	numRows := 0
	for i := range b.send {
		b.send[i], b.recv[i] = plan.Counts[i], x.matrix.at(i, x.Comm.Rank())
		numRows += b.recv[i]
	}
	if err := x.move(s, b, batch, numRows); err != nil {
		return nil, err
	}
	got, err := x.Receive(b.Bank, numRows, batch, plan.DroppedIDs, dropped)
	if err != nil {
		return nil, err
	}
	x.prepareReturn(b, batch)
	copies := plan.NumCopies()
	x.Count(b.Bank, batch.NumTokens, copies, copies-plan.Counts[x.Comm.Rank()], plan.DroppedIDs, dropped)
	return got, nil
}

// fit applies MaxRecvRows to the counts, the same way on every rank. It returns how many copies of this rank do not go.
func (x *host) fit(plan *routing.Plan) (dropped int, err error) {
	limit := x.Cfg.MaxRecvRows
	dst, rows := x.matrix.fullest()
	if rows <= limit {
		return 0, nil
	}
	if x.Cfg.Overflow == ep.Fail {
		return 0, x.Invalid("dispatch: rank %d would receive %d rows > MaxRecvRows %d; raise it, or set Overflow to Drop", x.WorldRank(dst), rows, limit)
	}
	x.matrix.clip(limit)
	return plan.Keep(x.matrix.row(x.Comm.Rank())), nil
}

// move packs the copies by destination and runs the one alltoallv of a dispatch.
func (x *host) move(s comm.Stream, b *bank, batch exchange.Batch, numRows int) error {
	if err := x.pack(b, batch); err != nil {
		return err
	}
	return x.deliver(s, b, numRows)
}

// pack gathers the copies by destination, and narrows them. It needs no peer.
func (x *host) pack(b *bank, batch exchange.Batch) (err error) {
	n := b.plan.NumCopies()
	src := [4]comm.Buffer{{}, comm.Of(b.plan.Locals, x.Cfg.TopK)}
	from := [4]comm.Buffer{batch.X, {}, comm.Of(batch.Weights, x.Cfg.TopK)}
	pack := [4]*exchange.Mem{b.rows, nil, b.topW, b.scales}
	b.numParts = 3
	switch {
	case x.Cfg.ScaleBytes > 0:
		b.numParts, from[3] = 4, batch.Scales
	case x.Cfg.Quantises():
		b.numParts = 4
		if from[0], err = b.q.Rows(x.Comm, batch.NumTokens); err != nil {
			return err
		}
		if from[3], err = b.qs.Rows(x.Comm, batch.NumTokens); err != nil {
			return err
		}
		x.Quantiser.Quantise(from[0], from[3], batch.X)
	}
	for i := range b.numParts {
		if pack[i] != nil {
			if src[i], err = pack[i].Rows(x.Comm, n); err != nil {
				return err
			}
			x.Gatherer.Gather(src[i], from[i], b.plan.Tokens)
		}
		b.parts[i].Src = src[i]
	}
	return nil
}

// deliver runs the one alltoallv of a dispatch: numRows rows without gaps to the front of the bank.
func (x *host) deliver(s comm.Stream, b *bank, numRows int) error {
	for i, m := range [4]*exchange.Mem{&b.X, &b.Locals, &b.Weights, &b.Scales} {
		if i < b.numParts {
			d, err := m.Rows(x.Comm, x.Places(numRows))
			if err != nil {
				return err
			}
			b.parts[i].Dst = d.Slice(0, numRows)
		}
	}
	return x.Comm.AllToAllV(s, comm.Host(b.send), comm.Host(b.recv), b.parts[:b.numParts]...)
}
