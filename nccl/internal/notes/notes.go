package notes

import (
	"sync"
	"sync/atomic"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/gpurank"
)

// Note is what one member calls, for the other members to compare with. One goroutine writes it, any may read.
type Note struct {
	id, signature atomic.Uint64

	mu   sync.Mutex // of what follows
	op   gpurank.Kept
	text string // not empty: no operation, but this
}

// Write fills the note with call id.
func (n *Note) Write(id, signature uint64, op *comm.Op, text string) {
	n.id.Store(0)
	n.mu.Lock()
	n.text = text
	if op != nil {
		n.op.Keep(op)
	}
	n.mu.Unlock()
	n.signature.Store(signature)
	n.id.Store(id)
}

// ID returns the number of the call; 0 while it is being written.
func (n *Note) ID() uint64 { return n.id.Load() }

// Signature returns what equal calls have in common.
func (n *Note) Signature() uint64 { return n.signature.Load() }

// Differs reports whether the note is of call id and has another signature.
func (n *Note) Differs(id, signature uint64) bool {
	return n.id.Load() == id && n.signature.Load() != signature && n.id.Load() == id
}

// String is the call in words.
func (n *Note) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.text != "" {
		return n.text
	}
	return n.op.String()
}

// Rows returns the host counts of an alltoallv for a peer: what is sent there and expected from there.
func (n *Note) Rows(peer int) (send, recv int, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	to, from := n.op.Counts()
	if n.text != "" || n.op.Kind() != comm.AllToAllV || peer >= len(to) || peer >= len(from) {
		return 0, 0, false
	}
	return to[peer], from[peer], true
}

// Hash is the signature of a call that is no operation.
func Hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
