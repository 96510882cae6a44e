package kernels

import "github.com/weftgo/weft/cuda"

// Low is where the words of an exchanger with fixed places are: State at this rank, all others as offsets in each rank's region.
type Low struct {
	State                         uint64 // LowStateBytes
	Passed, Refused, Ready        uint64 // LowWordBytes in all; Refused is the last
	Came, Heads, Notes, Landed    uint64 // of the bank
	Back, Pieces                  uint64
	Bank, HeadLines, Width, Parts uint32
	BackStride, Step, Phases      uint32
	Banks                         uint32
}

// Bits of Low.Phases: the halves of a call that a launch does.
const (
	LowSend = 1 << iota
	LowRecv
)

// Sizes of what Low points to, beside rows.
const (
	lowRefusals = 2
	LineBytes   = 16
)

// LowWordBytes is the words of all banks together.
func LowWordBytes(banks int) int { return (2 + lowRefusals*banks) * MaxRanks * 8 }

// LowStateBytes is the private memory for so many banks.
func LowStateBytes(banks int) int { return 8 * (8 + 32*banks) }

// LowHeadLines is the lines of a rank's head, where no rank has more than so many experts.
func LowHeadLines(numLocal int) int { return 1 + (numLocal+1)/2 }

// LowPieces is in how many pieces a row of so many values comes back, and the values of a piece: pieces of 2 KiB, at most eight.
func LowPieces(hidden, elem int) (parts, step int) {
	parts = max(1, min(8, hidden*elem/2048))
	step = ((hidden+parts-1)/parts + 7) / 8 * 8
	return (hidden + step - 1) / step, step
}

// LowDispatchArgs are the parameters of a dispatch to fixed places.
type LowDispatchArgs struct {
	DispatchArgs
	Low Low
}

// LowCombineArgs are the parameters of a combine from fixed places. Mode says what Y has.
type LowCombineArgs struct {
	CombineArgs
	Exchange                 Exchange
	Low                      Low
	Y, Slot, Weight, NumRows uint64
	YStride                  int64 // bytes
}

// LowDispatch launches on blocks blocks. Ranks may take different numbers.
func (s *ExchangeSet) LowDispatch(st *cuda.Stream, a *LowDispatchArgs, blocks int) error {
	a.Bulk = 0
	l := cuda.Linear(blocks, Threads)
	l.Shared = dispatchShared(&a.DispatchArgs.Exchange.Experts)
	return run(s, st, s.lowDispatch, &l, a, &a.Meet)
}

// LowCombine launches on blocks blocks. Ranks may take different numbers.
func (s *ExchangeSet) LowCombine(st *cuda.Stream, a *LowCombineArgs, blocks int) error {
	l := cuda.Linear(blocks, Threads)
	return run(s, st, s.lowCombine, &l, a, &a.Meet)
}
