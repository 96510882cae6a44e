package exchange

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/routing"
)

// Bank is the memory of one result. A strategy fills X, Scales, Locals and Weights in its Dispatch.
type Bank struct {
	X       Mem // Wire [numRows, hidden]: received rows
	Scales  Mem // [numRows, numScales] of Config.Scales
	Locals  Mem // int32 [numRows, topK]
	Weights Mem // float32 [numRows, topK]
	Out     Mem // DType [., hidden]: rows on their way back
	Index   routing.Index

	expX, expScales, y Mem
	memory             []*Mem
	core               *Core
	live               *state
	numRows, numTokens int // of this rank's batch
	received           int // rows
}

// state is one Dispatch's result. It is allocated anew each time, so that a stale one is recognised.
type state struct {
	ep.Received
	bank    *Bank // nil once taken
	core    *Core
	dropped [2]int32
	number  uint64 // of the Dispatch, from 1, equal on all ranks
	numRows [1]int32
	phase   phase
	stream  comm.Stream // of the Dispatch, on a GPU
	failed  error       // what reading the counts found, on a GPU
}

func newBank(x *Core) *Bank {
	cfg := x.Cfg
	scale, scales := cfg.Scales()
	scales = max(scales, 1)
	recv, slots := cfg.MaxRecvRows, int(cfg.MaxSlots())
	back, output := recv, slots
	if cfg.RankInvariant {
		back = recv * cfg.TopK
	}
	if cfg.Output == ep.PartialRows {
		output = recv
	}
	b := &Bank{core: x,
		X:         Mem{t: cfg.Wire, cols: cfg.WireCols, most: recv},
		Scales:    Mem{t: scale, cols: scales, most: recv},
		Locals:    Mem{t: dtype.I32, cols: cfg.TopK, most: recv},
		Weights:   Mem{t: dtype.F32, cols: cfg.TopK, most: recv},
		Out:       Mem{t: cfg.DType, cols: cfg.Hidden, most: back},
		expX:      Mem{t: cfg.Wire, cols: cfg.WireCols, most: slots},
		expScales: Mem{t: scale, cols: scales, most: slots},
		y:         Mem{t: cfg.DType, cols: cfg.Hidden, most: output},
	}
	b.memory = []*Mem{&b.X, &b.Scales, &b.Locals, &b.Weights, &b.Out, &b.expX, &b.expScales, &b.y}
	return b
}

// Own adds the strategy's memory of at most so many rows to the bank's, to be poisoned and freed with it.
func (b *Bank) Own(t dtype.DType, cols, most int) *Mem {
	m := &Mem{t: t, cols: cols, most: most}
	b.memory = append(b.memory, m)
	return m
}

// Banks returns all banks, for strategies that keep more with each.
func (x *Core) Banks() []*Bank { return x.banks }

// Free returns the number of the first free bank, or an Invalid error. The bank is taken by Receive.
func (x *Core) Free() (int, error) {
	for i, b := range x.banks {
		if b.live == nil {
			for _, m := range b.memory {
				m.poison()
			}
			return i, nil
		}
	}
	return 0, x.Invalid("dispatch: all %d banks hold results; Combine or Release one first, or raise Banks", len(x.banks))
}

// Receive takes bank b, if Hold has not, and makes the result of a Dispatch from its first numRows rows: index, expanded rows,
// output. With LowLatency the rows are at their fixed places, and Locals of all other places is -1.
func (x *Core) Receive(b *Bank, numRows int, batch Batch, droppedIDs, droppedCopies int) (*ep.Received, error) {
	cfg, places := x.Cfg, x.Places(numRows)
	locals, err := b.Locals.Rows(x.Comm, places)
	if err != nil {
		return nil, err
	}
	weights, err := b.Weights.Rows(x.Comm, places)
	if err != nil {
		return nil, err
	}
	b.Index.Build(View[int32](locals), View[float32](weights), cfg.TopK, x.NumLocal, cfg.Alignment)
	b.numRows, b.numTokens, b.received = batch.NumRows, batch.NumTokens, places
	x.numReceived++
	s := b.live
	if s == nil {
		s = &state{bank: b, core: x}
	}
	s.dropped, s.number, s.phase = [2]int32{int32(droppedIDs), int32(droppedCopies)}, x.numReceived, received
	if err := x.lay(&s.Received, b); err != nil {
		return nil, err
	}
	ix := &b.Index
	s.Index = ep.Index{Row: vector(ix.Row), K: vector(ix.K), Weight: vector(ix.Weight), Offsets: vector(ix.Offsets)}
	s.Index.Counts = comm.Of(ix.Counts, max(x.NumLocal, 1))
	s.Dropped = comm.Of(s.dropped[:], 2)
	s.numRows[0] = int32(numRows)
	s.NumRows = comm.Of(s.numRows[:], 1)
	s.State = s
	b.live = s
	return &s.Received, nil
}

// lay fills X, Scales and Y.
func (x *Core) lay(r *ep.Received, b *Bank) (err error) {
	cfg, n := x.Cfg, b.Index.NumSlots()
	if r.X, err = b.X.Rows(x.Comm, b.received); err != nil {
		return err
	}
	_, scales := cfg.Scales()
	if scales > 0 {
		if r.Scales, err = b.Scales.Rows(x.Comm, b.received); err != nil {
			return err
		}
	}
	if cfg.Layout == ep.Expanded {
		from := r.X
		if r.X, err = b.expX.Rows(x.Comm, n); err != nil {
			return err
		}
		x.Gatherer.Gather(r.X, from, b.Index.Row)
		if scales > 0 {
			from = r.Scales
			if r.Scales, err = b.expScales.Rows(x.Comm, n); err != nil {
				return err
			}
			x.Gatherer.Gather(r.Scales, from, b.Index.Row)
		}
	}
	if cfg.Output == ep.PartialRows {
		n = b.received
	}
	r.Y, err = b.y.Rows(x.Comm, n)
	return err
}

// Count adds one Dispatch to the counters.
func (x *Core) Count(b *Bank, tokens, copies, crossCopies, droppedIDs, droppedCopies int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stats.NumDispatches++
	x.stats.NumTokens += int64(tokens)
	x.stats.NumCopies += int64(copies)
	x.stats.NumCrossCopies += int64(crossCopies)
	x.stats.DroppedIDs += int64(droppedIDs)
	x.stats.DroppedCopies += int64(droppedCopies)
	x.stats.NumSlots += int64(b.Index.NumTrue)
	x.stats.HeldBytes = 0
	for _, bank := range x.banks {
		for _, m := range bank.memory {
			x.stats.HeldBytes += m.buf.SizeBytes()
		}
	}
	for e := range x.stats.ExpertTokens {
		x.stats.ExpertTokens[e] += int64(b.Index.Counts[e])
	}
}

// Release frees the bank: the result's buffers are no longer valid.
func (s *state) Release() {
	if s.bank == nil {
		return
	}
	s.bank.live, s.bank = nil, nil
	s.X, s.Scales, s.Y, s.Index = comm.Buffer{}, comm.Buffer{}, comm.Buffer{}, ep.Index{}
}
