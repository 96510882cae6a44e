package ep

import (
	"context"
	"iter"

	"github.com/weftgo/weft/comm"
)

// Received is what one Dispatch brought to this rank. Its memory is one of the exchanger's banks, valid until the Combine
// or Release that takes it; later use is an Invalid error.
type Received struct {
	X       comm.Buffer // Rows: [numRows, hidden]; Expanded: [numSlots, hidden]; LowLatency: [MaxRecvRows, hidden]. Type Wire; of Quantised rows WireCols columns
	Scales  comm.Buffer // float32 [rows of X, ceil(hidden/128)] with an fp8 wire, u8 [rows of X, ScaleBytes] of Quantised rows; else the zero Buffer
	Y       comm.Buffer // where experts may write their output, which Combine then reads in place; shape by Config.Output
	Index   Index
	NumRows comm.Buffer // int32 [1, 1]: received rows, with LowLatency without the gaps, whose content is undefined and not read by Combine; on a GPU buffers have room for the most there can be
	Dropped comm.Buffer // int32 [1, 2]: ids of this rank's tokens that went nowhere (Stats.DroppedIDs), and (row, rank) copies that did not fit MaxRecvRows
	State   any         // the exchanger's
}

// Releaser is what the State of a Received implements, for Release.
type Releaser interface{ Release() }

// Counter is what the State of a Received implements whose counts are on a GPU: it waits for them and returns Index.Counts
// and Index.Offsets.
type Counter interface {
	Counts(ctx context.Context) (counts, offsets []int32, err error)
}

// Release gives the memory back without a Combine. All ranks must do the same: the next collective of each is then a
// Dispatch. A second Release, or one after Combine, does nothing.
func (r *Received) Release() {
	if s, ok := r.State.(Releaser); ok {
		s.Release()
	}
}

// Experts yields each local expert that has tokens, in order, and its slots [lo, hi), padding left out. In the layout Expanded the
// slots are rows of X; in Rows they index Index.Row. Slots are rows of Y with ExpertRows. It stops when ctx ends, and yields
// nothing after Combine or Release. On a GPU it first waits for the counts; when that fails it yields nothing, and Combine
// returns the error.
func (r *Received) Experts(ctx context.Context) iter.Seq2[int, [2]int] {
	return func(yield func(int, [2]int) bool) {
		if r.Index.Offsets.IsZero() {
			return
		}
		var counts, offsets []int32
		if r.Index.Offsets.Device().Kind == comm.CPU {
			if offsets = comm.Row[int32](r.Index.Offsets, 0); len(offsets) > 1 {
				counts = comm.Row[int32](r.Index.Counts, 0)
			}
		} else if s, ok := r.State.(Counter); ok {
			var err error
			if counts, offsets, err = s.Counts(ctx); err != nil {
				return
			}
		}
		for e := range len(offsets) - 1 {
			n := int(counts[e])
			if ctx.Err() != nil {
				return
			}
			lo := int(offsets[e])
			if n > 0 && !yield(e, [2]int{lo, lo + n}) {
				return
			}
		}
	}
}
