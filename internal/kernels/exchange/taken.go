package exchange

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
)

// phase is how far a result is.
type phase uint8

const (
	received  phase = iota // Dispatch or DispatchRecv made it
	sent                   // DispatchSend took a bank for it
	returning              // CombineSend was called
)

// Hold takes bank b for a Dispatch of which the first half has run. Number is the Dispatch's, where it has one yet.
func (x *Core) Hold(b *Bank, batch Batch, number uint64) *ep.Received {
	b.numRows, b.numTokens, b.received = batch.NumRows, batch.NumTokens, 0
	s := &state{bank: b, core: x, phase: sent, number: number}
	s.State = s
	b.live = s
	return &s.Received
}

// Held returns the number of the bank of a result of which DispatchSend made the first half alone, and the Dispatch's.
func (x *Core) Held(r *ep.Received) (bank int, number uint64, err error) {
	s, err := x.stateOf("dispatch", r)
	if err != nil {
		return 0, 0, err
	}
	if s.phase != sent {
		return 0, 0, x.Invalid("dispatch: DispatchRecv of a result that was received before; it takes what DispatchSend returned, once")
	}
	return x.numberOf(s.bank), s.number, nil
}

// Places returns the rows of X that numRows received rows take: all of them with LowLatency.
func (x *Core) Places(numRows int) int {
	if x.Cfg.LowLatency {
		return x.Cfg.MaxRecvRows
	}
	return numRows
}

func (x *Core) numberOf(b *Bank) int {
	for i := range x.banks {
		if x.banks[i] == b {
			return i
		}
	}
	return -1
}

// stateOf returns a living result of this exchanger.
func (x *Core) stateOf(op string, r *ep.Received) (*state, error) {
	if x.closed {
		return nil, x.Invalid("%s: the exchanger is closed", op)
	}
	if r == nil {
		return nil, x.Invalid("%s: no Received given", op)
	}
	s, ok := r.State.(*state)
	switch {
	case !ok || s.core != x:
		return nil, x.Invalid("%s: the Received is not of this exchanger", op)
	case s.bank == nil:
		return nil, x.Invalid("%s: the Received was taken by an earlier Combine or Release", op)
	case s.failed != nil:
		return nil, s.failed
	}
	return s, nil
}

// Taken is a Combine's input, checked.
type Taken struct {
	Bank    *Bank
	Number  int         // of the bank
	Tag     uint64      // of the collective, so that ranks that combine different results get an error
	NumRows int         // received rows; with LowLatency their places
	Out     comm.Buffer // [numTokens, hidden]
	Y       comm.Buffer
	InPlace bool // Y is the bank's own memory
	Bias    []comm.Buffer
}

// CheckCombine reports what is wrong with a Combine's arguments on this rank. It takes nothing yet: Release does.
func (x *Core) CheckCombine(out, y comm.Buffer, r *ep.Received, bias []comm.Buffer) (Taken, error) {
	s, err := x.inPhase(r, received)
	if err == nil {
		err = x.checkOut(s, out)
	}
	if err == nil {
		err = x.checkY(s, y)
	}
	if err == nil {
		err = x.checkBias(s, bias)
	}
	if err != nil {
		return Taken{}, err
	}
	t := x.taken(s)
	t.Out, t.Y, t.Bias, t.InPlace = out.Slice(0, s.bank.numTokens), y, bias, y.Addr() == s.Y.Addr()
	return t, nil
}

// CheckCombineSend is CheckCombine of the first half.
func (x *Core) CheckCombineSend(y comm.Buffer, r *ep.Received) (Taken, error) {
	s, err := x.inPhase(r, received)
	if err == nil {
		err = x.checkY(s, y)
	}
	if err != nil {
		return Taken{}, err
	}
	t := x.taken(s)
	t.Y, t.InPlace = y, y.Addr() == s.Y.Addr()
	return t, nil
}

// CheckCombineRecv is CheckCombine of the second half.
func (x *Core) CheckCombineRecv(out comm.Buffer, r *ep.Received, bias []comm.Buffer) (Taken, error) {
	s, err := x.inPhase(r, returning)
	if err == nil {
		err = x.checkOut(s, out)
	}
	if err == nil {
		err = x.checkBias(s, bias)
	}
	if err != nil {
		return Taken{}, err
	}
	t := x.taken(s)
	t.Out, t.Bias = out.Slice(0, s.bank.numTokens), bias
	return t, nil
}

// inPhase returns a result that has come so far.
func (x *Core) inPhase(r *ep.Received, want phase) (*state, error) {
	s, err := x.stateOf("combine", r)
	switch {
	case err != nil || s.phase == want:
		return s, err
	case s.phase == sent:
		return nil, x.Invalid("combine: the Received was sent, but not received; call DispatchRecv first")
	case s.phase == returning:
		return nil, x.Invalid("combine: CombineSend took the Received; CombineRecv is what follows")
	}
	return nil, x.Invalid("combine: CombineRecv of a Received that CombineSend has not taken")
}

func (x *Core) checkY(s *state, y comm.Buffer) error {
	if err := x.tensor("y", y, x.Cfg.DType, s.Y.Rows(), x.Cfg.Hidden); err != nil {
		return x.Invalid("combine: %w (%v)", err, x.Cfg.Output)
	}
	return nil
}

func (x *Core) checkOut(s *state, out comm.Buffer) error {
	if err := x.tensor("out", out, x.Cfg.DType, s.bank.numRows, x.Cfg.Hidden); err != nil {
		return x.Invalid("combine: %w", err)
	}
	return nil
}

func (x *Core) checkBias(s *state, bias []comm.Buffer) error {
	if len(bias) > 2 {
		return x.Invalid("combine: %d bias tensors; at most 2", len(bias))
	}
	for i, v := range bias {
		if err := x.tensor("bias", v, x.Cfg.DType, s.bank.numRows, x.Cfg.Hidden); err != nil {
			return x.Invalid("combine: bias %d: %w", i, err)
		}
	}
	return nil
}

func (x *Core) taken(s *state) Taken {
	return Taken{Bank: s.bank, Number: x.numberOf(s.bank), NumRows: s.bank.received, Tag: s.number}
}

// Sent notes that CombineSend took the result.
func (t Taken) Sent() { t.Bank.live.phase = returning }

// Release frees the bank after a Combine.
func (t Taken) Release() {
	if t.Bank.live != nil {
		t.Bank.live.Release()
	}
}
