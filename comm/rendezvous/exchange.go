package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/weftgo/weft/comm"
)

// Exchange is an all_gather of small values: every rank gives mine and gets everyone's, in rank order. It is collective over
// ranks 0 to size-1, which need not be processes: two ranks of one process may call it at once. A name may be used again: a
// rank's n-th call belongs to the n-th round of that name. After an error the ranks are out of step for that name. On a store
// that is no Gatherer the values of old rounds stay in it.
func Exchange(ctx context.Context, s Store, name string, rank, size int, mine []byte) ([][]byte, error) {
	values, err := exchangeAll(ctx, s, name, rank, size, mine)
	if err == nil {
		return values, nil
	}
	if e := (*comm.Error)(nil); errors.As(err, &e) {
		named := *e
		named.Rank = rank
		return nil, &named
	}
	return nil, fmt.Errorf("exchange %q: rank %d: %w", name, rank, err)
}

func exchangeAll(ctx context.Context, s Store, name string, rank, size int, mine []byte) ([][]byte, error) {
	if size < 1 || size > maxRanks || rank < 0 || rank >= size {
		return nil, failure("exchange", name, invalid("rank %d of %d", rank, size))
	}
	if g, ok := s.(Gatherer); ok {
		return g.Gather(ctx, name, rank, size, mine)
	}
	round, err := s.Add(ctx, name+"/calls/"+strconv.Itoa(rank), 1)
	if err != nil {
		return nil, err
	}
	key := func(rank int) string { return fmt.Sprintf("%s/%d/%d", name, round, rank) }
	if err := s.Set(ctx, key(rank), mine); err != nil {
		return nil, err
	}
	values := make([][]byte, size)
	for i := range values {
		if values[i], err = s.Get(ctx, key(i)); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// failure dresses the error of an operation on key; nil stays nil.
func failure(op, key string, err error) error {
	if err == nil {
		return nil
	}
	op = fmt.Sprintf("store %s %.64q", op, key)
	if e, ok := err.(*comm.Error); ok {
		named := *e
		named.Op = op
		return &named
	}
	return &comm.Error{Op: op, Peer: comm.NoPeer, Code: comm.Internal, Err: err}
}

// alive returns an error when ctx has ended.
func alive(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return ended(ctx, "before it began")
}

// ended is the error of a wait that ctx has ended: Timeout for a deadline, Aborted for a cancellation, or what a *comm.Error
// that cancelled it says, such as that of Client.Context.
func ended(ctx context.Context, what string) error {
	cause := context.Cause(ctx)
	e := &comm.Error{Peer: comm.NoPeer, Code: comm.Aborted, Err: fmt.Errorf("%s: %w", what, cause)}
	if why := (*comm.Error)(nil); errors.As(cause, &why) {
		e.Code, e.Peer = why.Code, why.Peer
	} else if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.Code = comm.Timeout
	}
	return e
}
