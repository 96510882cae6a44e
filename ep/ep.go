package ep

import (
	"context"
	"iter"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/routing"
)

// Layout says how received rows lie in Received.X.
type Layout uint8

// The layouts.
const (
	Rows     Layout = iota // each received row once, in (source rank, token) order; the index groups them by expert
	Expanded               // one copy per (token, expert), grouped by local expert, padded with zero rows to Alignment
)

// Output says what the experts hand to Combine.
type Output uint8

// The outputs.
const (
	ExpertRows  Output = iota // one row per slot of the index [numSlots, hidden]; Combine weights and sums them
	PartialRows               // one row per received row [numRows, hidden], already weighted and summed over this rank's experts
)

// Overflow says what happens to rows beyond MaxRecvRows.
type Overflow uint8

// The policies.
const (
	Fail Overflow = iota // every rank gets an Invalid error with the numbers, and nothing is exchanged
	Drop                 // the last rows in (source, token) order are not sent, and counted
)

// Config describes an exchange. All ranks must give the same.
type Config struct {
	NumExperts, TopK, Hidden int
	MaxTokensPerRank         int               // the most rows one rank may dispatch
	DType                    dtype.DType       // of x, y and out; zero means F32
	Wire                     dtype.DType       // of dispatched rows: zero means DType; F8E4M3 adds one scale per 128 values
	Placement                routing.Placement // zero means linear over the ranks of the Comm
	Layout                   Layout
	Output                   Output
	Alignment                int // slots of an expert are padded to a multiple; 0 means 1
	MaxRecvRows              int // rows one rank can receive; 0 means the worst case, ranks x MaxTokensPerRank
	Overflow                 Overflow
	Banks                    int  // results alive at once; 0 means 1
	RankInvariant            bool // sum all k expert rows at the source in k order (alltoall, ExpertRows): same bits for any number of ranks
}

// Routing is what the router chose for this rank's tokens.
type Routing struct {
	IDs       comm.Buffer // int32 [numTokens, topK]; ids outside [0, NumExperts) are dropped and counted
	Weights   comm.Buffer // float32 [numTokens, topK]
	NumTokens comm.Buffer // optional int32 [1, 1] on the device: only the first NumTokens rows count
}

// Index groups the received rows by local expert. A slot is one (received row, local expert) pair; the slots of an expert
// lie together, ordered by (source rank, token, k), and are padded to Config.Alignment.
type Index struct {
	Row     comm.Buffer // int32 [1, numSlots]: row of Received.X; -1 in padding
	K       comm.Buffer // int32 [1, numSlots]: which of the token's k choices this is; -1 in padding
	Weight  comm.Buffer // float32 [1, numSlots]: router weight; 0 in padding
	Counts  comm.Buffer // int32 [2, numLocalExperts]: true counts, then padded counts
	Offsets comm.Buffer // int32 [1, numLocalExperts+1]: first slot of each expert; the last is numSlots
}

// Received is what one Dispatch brought to this rank. Its memory is one of the exchanger's banks, valid until the Combine
// or Release that takes it; later use is an Invalid error.
type Received struct {
	X       comm.Buffer // Rows: [numRows, hidden]; Expanded: [numSlots, hidden]. Type Wire
	Scales  comm.Buffer // float32 [rows of X, ceil(hidden/128)] with an fp8 wire; else the zero Buffer
	Y       comm.Buffer // where experts may write their output, which Combine then reads in place; shape by Config.Output
	Index   Index
	Dropped comm.Buffer // int32 [1, 2]: ids of this rank's tokens outside [0, NumExperts), and (row, rank) copies that did not fit MaxRecvRows
	State   any         // the exchanger's
}

// Exchanger sends each token to the experts it was routed to and brings the weighted sum back. All ranks call Dispatch and
// Combine in the same order; T = 0 takes part. One goroutine uses it at a time.
type Exchanger interface {
	// Dispatch sends the rows of x [numTokens, hidden] to the ranks that own their experts.
	Dispatch(s comm.Stream, x comm.Buffer, r Routing) (*Received, error)
	// Combine brings the expert outputs y back and writes out [numTokens, hidden]: the sum over a token's experts, plus
	// up to two bias tensors [numTokens, hidden], which are added last in the order given, in fp32 before the one rounding.
	Combine(s comm.Stream, out, y comm.Buffer, r *Received, bias ...comm.Buffer) error
	// Config returns the configuration with defaults filled in.
	Config() Config
	// Name returns "agrs" or "alltoall", for messages and logs.
	Name() string
	Close(ctx context.Context) error
}

var _ iter.Seq2[int, [2]int] // Received.Experts returns one
