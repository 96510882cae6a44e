package agrs

import (
	"errors"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// refuseCall takes part in the all_gatherv of a dispatch that is wrong on this rank, with a count that no rank may give:
// the driver then fails the call on every rank before it moves a row, and nobody waits. It returns cause, or how taking
// part failed if the world died of it.
func (x *host) refuseCall(s comm.Stream, cause error) error {
	if x.Closed() {
		return cause
	}
	empty := exchange.Batch{X: x.empty, Scales: x.noScales, IDs: []int32{}, Weights: []float32{}, NumTokens: refused}
	if _, err := x.gather(s, x.banks[0], empty); err != nil && !errors.Is(err, comm.Invalid) {
		return errors.Join(cause, err)
	}
	return cause
}

// explain says what a driver's complaint means where it is about a count of -1.
func (x *host) explain(err error) error {
	var e *comm.Error
	if !errors.As(err, &e) || e.Code != comm.Invalid {
		return err
	}
	return &comm.Error{Op: x.Name(), Rank: e.Rank, Peer: e.Peer, Code: comm.Invalid,
		Err: fmt.Errorf("dispatch: nothing was exchanged: %w (a rank with own count %d refused its call, and its own error says why)", err, refused)}
}

// refused is the count of a rank that cannot dispatch.
const refused = -1

// addBias writes sums plus the bias tensors to out, rounded once.
func (x *host) addBias(t exchange.Taken, sums comm.Buffer) {
	for n := len(x.each); n <= t.Out.Rows(); n++ {
		x.each = append(x.each, int32(n))
	}
	x.Sums.Sum(t.Out, sums, exchange.Terms{Start: x.each, Item: x.each}, t.Bias)
}
