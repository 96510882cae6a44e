package alltoall

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// splitter is what an engine does of ep.Splitter, with Config.LowLatency.
type splitter interface {
	dispatchSend(s comm.Stream, x comm.Buffer, r ep.Routing) (*ep.Received, error)
	dispatchRecv(s comm.Stream, r *ep.Received) error
	combineSend(s comm.Stream, y comm.Buffer, r *ep.Received) error
	combineRecv(s comm.Stream, out comm.Buffer, r *ep.Received, bias []comm.Buffer) error
}

// half is what the first half of a call leaves to the second.
type half struct {
	batch exchange.Batch // without rows and routing, which are the caller's again
	cause error          // why this rank refused
	src   comm.Buffer    // what goes back
}

// lowHost is the engine of the CPU with LowLatency. A Send does all that needs no peer: routing, narrowing and packing, or
// the partial sums. A Recv moves and indexes, or moves and adds up.
type lowHost struct {
	*host
	fixed []int32 // the place of each received row
}

func (x *lowHost) dispatch(s comm.Stream, rows comm.Buffer, r ep.Routing) (*ep.Received, error) {
	got, err := x.dispatchSend(s, rows, r)
	if err == nil {
		err = x.dispatchRecv(s, got)
	} else if !x.Closed() { // ranks that have a bank must hear that this one has none
		if dead := x.matrix.exchange(s, x.Comm, x.none, true); dead != nil {
			err = dead
		}
	}
	if err != nil {
		return nil, err
	}
	return got, nil
}

func (x *lowHost) dispatchSend(_ comm.Stream, rows comm.Buffer, r ep.Routing) (*ep.Received, error) {
	batch, cause := x.Check(rows, r)
	if cause != nil && x.Closed() {
		return nil, cause
	}
	free, err := x.Free()
	if err != nil {
		return nil, err
	}
	b := x.banks[free]
	if cause == nil {
		cause = b.plan.Build(batch.IDs, x.Cfg.TopK)
	}
	if cause == nil {
		cause = x.pack(b, batch)
	}
	if cause == nil && x.Cfg.RankInvariant {
		b.terms.returned(b, batch, x.Cfg.TopK)
	}
	b.half = half{batch: exchange.Batch{NumRows: batch.NumRows, NumTokens: batch.NumTokens}, cause: cause}
	return x.Hold(b.Bank, batch, 0), nil
}

func (x *lowHost) dispatchRecv(s comm.Stream, r *ep.Received) error {
	held, _, err := x.Held(r)
	if err != nil {
		return err
	}
	b := x.banks[held]
	if err = x.receive(s, b); err != nil {
		r.Release()
	}
	return err
}

func (x *lowHost) receive(s comm.Stream, b *bank) error {
	plan, cause := b.plan, b.half.cause
	if cause != nil {
		plan = x.none
	}
	if err := x.matrix.exchange(s, x.Comm, plan, cause != nil); err != nil {
		return err
	}
	if cause != nil {
		return cause
	}
	if peer := x.matrix.refuser(); peer >= 0 {
		return x.Refused(peer)
	}
	me, numRows, room := x.Comm.Rank(), 0, x.Cfg.MaxTokensPerRank
	for i := range b.send {
		b.send[i], b.recv[i] = plan.Counts[i], x.matrix.at(i, me)
		numRows += b.recv[i]
	}
	if err := x.deliver(s, b, numRows); err != nil {
		return err
	}
	for i, m := range [4]*exchange.Mem{&b.X, &b.Locals, &b.Weights, &b.Scales} {
		if i < b.numParts {
			m.Spread(b.recv, room)
		}
	}
	locals, err := b.Locals.Rows(x.Comm, x.Places(numRows))
	if err != nil {
		return err
	}
	list := exchange.View[int32](locals)
	for i, n := range b.recv {
		for j := (i*room + n) * x.Cfg.TopK; j < (i+1)*room*x.Cfg.TopK; j++ {
			list[j] = -1
		}
	}
	if _, err := x.Receive(b.Bank, numRows, b.half.batch, plan.DroppedIDs, 0); err != nil {
		return err
	}
	if x.Cfg.RankInvariant {
		x.packed(b)
	}
	copies := plan.NumCopies()
	x.Count(b.Bank, b.half.batch.NumTokens, copies, copies-plan.Counts[me], plan.DroppedIDs, 0)
	return nil
}

func (x *lowHost) combine(s comm.Stream, out, y comm.Buffer, r *ep.Received, bias []comm.Buffer) error {
	t, err := x.CheckCombine(out, y, r, bias)
	if err != nil {
		return err
	}
	defer t.Release()
	b := x.banks[t.Number]
	src, err := x.returning(b, t.Y)
	if err != nil {
		return err
	}
	return x.bring(s, b, t, src)
}

func (x *lowHost) combineSend(_ comm.Stream, y comm.Buffer, r *ep.Received) error {
	t, err := x.CheckCombineSend(y, r)
	if err != nil {
		return err
	}
	b := x.banks[t.Number]
	if b.half.src, err = x.returning(b, t.Y); err != nil {
		t.Release()
		return err
	}
	t.Sent()
	return nil
}

func (x *lowHost) combineRecv(s comm.Stream, out comm.Buffer, r *ep.Received, bias []comm.Buffer) error {
	t, err := x.CheckCombineRecv(out, r, bias)
	if err != nil {
		return err
	}
	defer t.Release()
	b := x.banks[t.Number]
	return x.bring(s, b, t, b.half.src)
}

// returning packs what goes back, of rows at their fixed places, in memory of the bank's.
func (x *lowHost) returning(b *bank, y comm.Buffer) (comm.Buffer, error) {
	if x.Cfg.RankInvariant {
		return x.expertRows(b, y)
	}
	numRows, room := 0, x.Cfg.MaxTokensPerRank
	x.fixed = x.fixed[:0]
	for src, n := range b.recv {
		numRows += n
		for i := range n {
			x.fixed = append(x.fixed, int32(src*room+i))
		}
	}
	out, err := b.Out.Rows(x.Comm, numRows)
	if err != nil {
		return out, err
	}
	if x.Cfg.Output == ep.PartialRows {
		x.Gatherer.Gather(out, y, x.fixed)
		return out, nil
	}
	row := 0
	for src, n := range b.recv {
		x.Partials.SumFrom(src*room, out.Slice(row, row+n), y, &b.Index, x.Cfg.TopK, x.Cfg.DType)
		row += n
	}
	return out, nil
}
