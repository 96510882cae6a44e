package kernels

import (
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
)

// Note names a launch of another package's kernel in messages.
type Note struct {
	Label string // such as "combine"
	Shape string // such as "f32[8]"
	Tag   uint64 // which of the launches that ranks make in the same order
}

// String returns a line for messages, such as "combine f32[8] tag 3".
func (n Note) String() string { return fmt.Sprintf("%s %s tag %d", n.Label, n.Shape, n.Tag) }

// Seat is where a rank's kernels run.
type Seat struct {
	Stream *cuda.Stream
	Set    *ExchangeSet
	Blocks int // the most that a kernel may have which waits for peers
	Most   int // the most of one that waits for nobody; 0: as many as there are multiprocessors
}

// Seater is a power of a driver's Conn: it lets another package launch kernels that meet as the driver's own do, with the
// world's epochs, deadlines, abort words and records of errors. One goroutine uses it at a time, as of a Conn.
type Seater interface {
	// Seat orders the stream after the rank's earlier work. With a not nil it also notes the call and fills in what a
	// meeting needs of a and its entry: the caller has set Signature and parts, and launches exactly one kernel with it. Errors
	// of earlier operations may appear here.
	Seat(s comm.Stream, a *Args, n Note) (Seat, error)
	// Blocks returns Seat.Blocks.
	Blocks() int
	// Limit bounds the blocks of the operations that follow, those of the Conn's Do too; 0: as Blocks says.
	Limit(blocks int)
	// SameGPU reports whether all ranks of the group share one GPU of this process.
	SameGPU() bool
}

// Exchange's own reasons of a Record.
const (
	Refused   = iota + SrcSend + 1 // rank A refused its call
	Overflows                      // rank A would receive N rows > Limit
	BadTokens                      // rank A's number of tokens N is not in [0, Limit]
)

// Exchange explains a record that an exchange's kernel left, of a rank with number a in the world.
func (r *Record) Exchange(a int) (text string, ok bool) {
	switch r.Why {
	case Refused:
		return fmt.Sprintf("dispatch: rank %d refused its call, so nothing was exchanged; its own error says why", a), true
	case Overflows:
		return fmt.Sprintf("dispatch: rank %d would receive %d rows > MaxRecvRows %d; raise it, or set Overflow to Drop", a, r.N, r.Limit), true
	case BadTokens:
		return fmt.Sprintf("dispatch: NumTokens %d is not in [0, %d]", r.N, r.Limit), true
	}
	return "", false
}
