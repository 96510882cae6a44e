package comm

import (
	"errors"
	"fmt"
	"strings"
)

// Code classes an error. It is itself an error, so that errors.Is(err, comm.Timeout) works.
type Code uint8

// The codes.
const (
	Internal    Code = iota // a broken invariant of weft or of a library below it; in World.Run, a function that failed
	Invalid                 // the call is wrong: shapes, types, counts, ranks that disagree
	Unavailable             // this driver, device or library version cannot do it
	Timeout                 // a rank did not come within the world's timeout; the world is dead
	Remote                  // another rank failed, or its process is gone; the world is dead
	Aborted                 // the world was aborted; Err is the cause
)

// Error returns the code's name.
func (c Code) Error() string {
	switch c {
	case Invalid:
		return "invalid"
	case Unavailable:
		return "unavailable"
	case Timeout:
		return "timeout"
	case Remote:
		return "remote"
	case Aborted:
		return "aborted"
	}
	return "internal"
}

// NoPeer is Error.Peer when no other rank is to blame.
const NoPeer = -1

// Error is what every operation of this package returns when it fails.
type Error struct {
	Op   string // what was called, such as "all_gatherv #7"
	Rank int    // who called it, by its rank in the world
	Peer int    // the rank of the world to blame or waited for; NoPeer when there is none
	Code Code
	Err  error // the cause, or the text
}

// Error returns "op: rank 3: timeout: waited for rank 5: ...".
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: rank %d: %v", e.Op, e.Rank, e.Code)
	if e.Peer >= 0 {
		fmt.Fprintf(&b, " (rank %d)", e.Peer)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is e's Code.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// AbortedError makes the error that a rank's call returns when its world died of cause. Peer is the rank that cause
// blames: the one it waited for or disagreed with, else the one it happened to.
func AbortedError(op string, rank int, cause error) *Error {
	err := &Error{Op: op, Rank: rank, Peer: NoPeer, Code: Aborted, Err: cause}
	if e := (*Error)(nil); errors.As(cause, &e) {
		if err.Peer = e.Peer; err.Peer == NoPeer {
			err.Peer = e.Rank
		}
	}
	return err
}

// Blamed returns the rank of the world that an error is about: the Peer that it names, else the rank whose call failed; NoPeer when
// err holds no Error. It is who to leave behind with World.Without.
func Blamed(err error) int {
	e := (*Error)(nil)
	switch {
	case !errors.As(err, &e):
		return NoPeer
	case e.Peer != NoPeer:
		return e.Peer
	}
	return e.Rank
}

// Errorf makes an Error whose cause is a formatted text.
func Errorf(op string, rank int, code Code, format string, args ...any) *Error {
	return &Error{Op: op, Rank: rank, Peer: NoPeer, Code: code, Err: fmt.Errorf(format, args...)}
}
