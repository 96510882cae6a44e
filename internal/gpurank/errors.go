package gpurank

import (
	"context"
	"errors"

	"github.com/weftgo/weft/comm"
)

// CodeOf classes what the packages below say. A context's end counts when nothing else has a class.
func CodeOf(err error) comm.Code {
	for _, c := range []comm.Code{comm.Unavailable, comm.Invalid, comm.Remote, comm.Timeout, comm.Aborted} {
		if errors.Is(err, c) {
			return c
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return comm.Timeout
	case errors.Is(err, context.Canceled):
		return comm.Aborted
	}
	return comm.Internal
}

// Fail gives an error its class, an operation and a rank of the world.
func Fail(op string, rank int, err error) *comm.Error {
	return &comm.Error{Op: op, Rank: rank, Peer: comm.NoPeer, Code: CodeOf(err), Err: err}
}
