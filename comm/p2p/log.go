package p2p

import (
	"fmt"
	"sync"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/gpurank"
	"github.com/weftgo/weft/internal/kernels"
)

// numNotes is the calls that a log remembers. Kernels name calls by number, and a message needs the text of calls that
// peers made a while ago.
const numNotes = 128

// log is what a rank called lately in a group. Peers read it for their messages.
type log struct {
	away  bool // the rank is in another process, which alone knows its calls
	mu    sync.Mutex
	last  uint32
	notes [numNotes]note
}

// note is one call.
type note struct {
	id    uint32
	op    gpurank.Kept
	split string       // not empty: no operation, but this
	other kernels.Note // the same, where it has a label
}

// add notes a call and returns its number. It copies what is the caller's.
func (l *log) add(op *comm.Op) uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	n := &l.notes[l.last%numNotes]
	n.id, n.split, n.other = l.last, "", kernels.Note{}
	n.op.Keep(op)
	return l.last
}

// addSplit notes a call that is no operation.
func (l *log) addSplit(text string) uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	n := &l.notes[l.last%numNotes]
	n.id, n.split, n.other = l.last, text, kernels.Note{}
	return l.last
}

// describe returns the label and the full text of a call.
func (l *log) describe(id uint32) (label, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := &l.notes[id%numNotes]
	switch {
	case l.away:
		return fmt.Sprintf("call %d", id), fmt.Sprintf("its call %d (in another process)", id)
	case n.id != id || id == 0:
		return fmt.Sprintf("call %d", id), fmt.Sprintf("its call %d, longer ago than the last %d", id, numNotes)
	case n.other.Label != "":
		return n.other.Label, n.other.String()
	case n.split != "":
		return "split", n.split
	}
	return n.op.Label(), n.op.String()
}
