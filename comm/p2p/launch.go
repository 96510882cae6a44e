package p2p

import (
	"errors"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/kernels"
)

// Seat lets another package launch a kernel on the rank's stream; see [kernels.Seater].
func (c *conn) Seat(s comm.Stream, a *kernels.Args, n kernels.Note) (kernels.Seat, error) {
	if err := c.ready(); err != nil {
		if e := (*comm.Error)(nil); errors.As(err, &e) && e.Op == "" {
			e.Op = n.Label
		}
		return kernels.Seat{}, err
	}
	st, err := c.r.streams.Of(s)
	if err == nil {
		err = c.r.streams.Order(st)
	}
	if err != nil {
		return kernels.Seat{}, &comm.Error{Op: n.Label, Rank: c.r.index, Peer: comm.NoPeer, Code: comm.Invalid, Err: err}
	}
	if a != nil {
		a.Ctl, a.Shared = uint64(c.ctl), c.g.shared
		a.Entry.Call = c.log.addNote(n)
		a.SetEntryWords()
		c.calls.Add(1)
	}
	return kernels.Seat{Stream: st, Set: c.r.gpu.kernels.Exchange(), Blocks: c.r.gpu.blocks}, nil
}

// Blocks returns the most blocks of a kernel of this rank that waits for peers.
func (c *conn) Blocks() int { return c.r.gpu.blocks }

// Limit bounds the blocks of the operations that follow; 0: as many as Blocks says.
func (c *conn) Limit(blocks int) { c.limit = blocks }

// SameGPU reports whether all ranks of the group share one GPU of this process.
func (c *conn) SameGPU() bool { return c.g.shared&kernels.SameGPU != 0 }

// addNote notes a call that is no operation of a Comm and returns its number.
func (l *log) addNote(n kernels.Note) uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	at := &l.notes[l.last%numNotes]
	at.id, at.split, at.other = l.last, "", n
	return l.last
}

var _ kernels.Seater = (*conn)(nil)
