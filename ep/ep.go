package ep

import (
	"context"

	"github.com/weftgo/weft/comm"
)

// Routing is what the router chose for this rank's tokens. Dispatch has read it when it returns; it may be reused then.
type Routing struct {
	IDs       comm.Buffer // int32 [numTokens, topK]; ids outside [0, NumExperts), or of missing experts, are dropped and counted
	Weights   comm.Buffer // float32 [numTokens, topK]
	NumTokens comm.Buffer // optional int32 [1, 1] on the device: only the first NumTokens rows count
	Scales    comm.Buffer // u8 [numTokens, ScaleBytes] of the caller's quantised rows (Config.Quantised); rows may have a stride
}

// Index groups the received rows by local expert. A slot is one (received row, local expert) pair; the slots of an expert
// lie together, ordered by (source rank, token, k), and are padded to Config.Alignment. A buffer of no elements has the
// shape [0, 1], since no buffer has zero columns; comm.View gives an empty slice of it. On a GPU the shapes are those of the most
// slots there can be; the last offset says how many there are.
type Index struct {
	Row     comm.Buffer // int32 [1, numSlots]: row of Received.X in the layout Rows; -1 in padding
	K       comm.Buffer // int32 [1, numSlots]: which of the token's k choices this is; -1 in padding
	Weight  comm.Buffer // float32 [1, numSlots]: router weight; 0 in padding
	Counts  comm.Buffer // int32 [2, numLocalExperts]: true counts, then padded counts
	Offsets comm.Buffer // int32 [1, numLocalExperts+1]: first slot of each expert; the last is numSlots
}

// NumSlots returns the number of slots, padding included.
func (x Index) NumSlots() int { return x.Row.Rows() * x.Row.Cols() }

// NumLocalExperts returns the number of experts of this rank.
func (x Index) NumLocalExperts() int { return x.Offsets.Cols() - 1 }

// Exchanger sends each token to the experts it was routed to and brings the weighted sum back. All ranks call Dispatch and
// Combine in the same order; T = 0 takes part. One goroutine uses it at a time.
type Exchanger interface {
	// Dispatch sends the rows of x [numTokens, hidden] (Config.Input) to the ranks that own their experts. x may have a row stride. A
	// call that is wrong on one rank (too many tokens, a wrong shape, no free bank) is an Invalid error on every rank,
	// and the exchanger stays usable.
	Dispatch(s comm.Stream, x comm.Buffer, r Routing) (*Received, error)
	// Combine brings the expert outputs y back and writes out [numTokens, hidden]: the sum over a token's experts, plus
	// up to two bias tensors [numTokens, hidden], which are added last in the order given, in fp32 before the one rounding.
	// Rows beyond Routing.NumTokens are not written. A token without experts gets zeros plus bias. A wrong call is an
	// Invalid error on this rank only, and takes nothing: it may be repeated. So does one that is Unavailable because its stream is
	// captured (between nodes no graph can have it). After any other error r is released, as after none.
	Combine(s comm.Stream, out, y comm.Buffer, r *Received, bias ...comm.Buffer) error
	// Config returns the configuration with defaults filled in.
	Config() Config
	// Name returns "agrs" or "alltoall", for messages and logs.
	Name() string
	// Close frees this rank's memory and waits for nobody. Later calls are Invalid errors, but for Close.
	Close(ctx context.Context) error
}

// Stats counts what one rank's exchanger did since it was made.
type Stats struct {
	NumDispatches      int64
	NumTokens          int64   // rows this rank dispatched
	NumCopies          int64   // (token, rank) pairs sent, those to this rank itself included
	NumCrossCopies     int64   // of NumCopies, those to other ranks
	NumNodeCopies      int64   // between nodes: (token, node) pairs sent, those to this rank's own node included; else 0
	NumCrossNodeCopies int64   // of NumNodeCopies, those to other nodes
	NumSlots           int64   // (received row, local expert) pairs, without padding
	DroppedIDs         int64   // ids of this rank's tokens outside [0, NumExperts), or of experts without a place (Placement.AllowMissing)
	DroppedCopies      int64   // (token, rank) pairs of this rank that did not fit MaxRecvRows
	HeldBytes          int64   // memory for rows, after the last Dispatch: grows with the largest batch, bounded by Config.Bytes
	ExpertTokens       []int64 // [numLocalExperts]: slots of each expert, without padding
}

// Meter is an optional power of an Exchanger. On the CPU any goroutine may call Stats; on a GPU the counters are on the device,
// so the rank's goroutine alone may, and it waits for the rank's work.
type Meter interface{ Stats() Stats }
