package lastwords

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
)

// tellTime is how long a dying process tries to tell the others. They have deadlines too.
const tellTime = 2 * time.Second

// Line is one process's end of the key. Any goroutine may use it.
type Line struct {
	store  rendezvous.Store
	key    string
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu   sync.Mutex
	over bool // heard, told or closed: whatever came first
}

// Listen watches the key until the first of three things: another process's last words, a *comm.Error, or the store's failure, which
// it gives to heard; a Tell of this process; Close. heard runs on a goroutine of the Line and must not call Close.
func Listen(store rendezvous.Store, key string, heard func(err error, fromStore bool)) *Line {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Line{store: store, key: key, cancel: cancel}
	l.work.Go(func() {
		b, err := store.Get(ctx, key)
		for errors.Is(err, comm.Timeout) && ctx.Err() == nil { // a store may bound its waits
			b, err = store.Get(ctx, key)
		}
		if !l.claim() {
			return
		}
		if err != nil {
			heard(err, true) // Peer of it, where it has one, is the number of a process, not a rank
			return
		}
		heard(parse(b), false)
	})
	return l
}

// claim reports whether nothing has happened yet; from then on something has.
func (l *Line) claim() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.over = true
	return true
}

// Tell lets the other processes know why this one gives the world up; rank is a rank of this process, which is to blame when cause names
// none. It waits for the store, but not long. It does nothing when the cause was heard from another process, or after Close.
func (l *Line) Tell(cause error, rank int) {
	if !l.claim() {
		return
	}
	l.cancel()
	limit, done := context.WithTimeout(context.Background(), tellTime)
	defer done()
	_ = l.store.Set(limit, l.key, words(cause, rank))
}

// Close ends the watch, and waits for heard where it has begun.
func (l *Line) Close() {
	l.claim()
	l.cancel()
	l.work.Wait()
}

// death is why a world died, as it is written.
type death struct {
	Op         string
	Rank, Peer int
	Code       comm.Code
	Text       string
}

func words(cause error, rank int) []byte {
	d := death{Op: "world", Rank: rank, Peer: comm.NoPeer, Code: comm.Aborted, Text: cause.Error()}
	if e := (*comm.Error)(nil); errors.As(cause, &e) {
		d.Op, d.Rank, d.Peer, d.Code = e.Op, e.Rank, e.Peer, e.Code
		if e.Err != nil {
			d.Text = e.Err.Error()
		}
	}
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // numbers and strings
	}
	return b
}

func parse(b []byte) *comm.Error {
	var d death
	if err := json.Unmarshal(b, &d); err != nil {
		return comm.Errorf("world", 0, comm.Remote, "another process ended the world with %q: %w", b, err)
	}
	if d.Code > comm.Aborted {
		d.Code = comm.Remote
	}
	return &comm.Error{Op: d.Op, Rank: d.Rank, Peer: d.Peer, Code: d.Code, Err: fmt.Errorf("%s (in another process)", d.Text)}
}
