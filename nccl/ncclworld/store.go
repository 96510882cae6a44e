package ncclworld

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/lastwords"
	"github.com/weftgo/weft/nccl"
)

// Keys of a world in the store, after its prefix:
//
//	id       NCCL's unique id, of rank 0's process
//	dead     of package lastwords: the first process that gave the world up
//	ask      someone waits too long and wants to know how far the others are
//	calls/i  how many collectives of the world rank i had begun when it was asked

// share returns NCCL's unique id, the same in all processes.
func (w *world) share(ctx context.Context) (nccl.ID, error) {
	s := w.cfg.Store
	if s == nil || w.cfg.Size == len(w.ranks) {
		return nccl.UniqueID()
	}
	// The processes of one opening add up to Size, and none begins the next one before all have come.
	sum, err := s.Add(ctx, w.cfg.Name+"/ranks", int64(len(w.ranks)))
	if err != nil {
		return nccl.ID{}, fmt.Errorf("announce ranks %d to %d: %w", w.cfg.First, w.cfg.First+len(w.ranks)-1, err)
	}
	w.prefix = w.cfg.Name + "/" + strconv.FormatInt((sum-1)/int64(w.cfg.Size), 10) + "/"
	if w.cfg.First == 0 {
		id, err := nccl.UniqueID()
		if err == nil {
			err = s.Set(ctx, w.prefix+"id", id[:])
		}
		return id, err
	}
	raw, err := s.Get(ctx, w.prefix+"id")
	if err != nil {
		return nccl.ID{}, fmt.Errorf("the unique id of rank 0's process: %w", err)
	}
	if len(raw) != len(nccl.ID{}) {
		return nccl.ID{}, comm.Errorf("open nccl", w.cfg.First, comm.Internal, "a unique id of %d bytes in %sid", len(raw), w.prefix)
	}
	return nccl.ID(raw), nil
}

// shared reports whether other processes can be told.
func (w *world) shared() bool { return w.prefix != "" }

// publishTime bounds the answer to an ask.
const publishTime = time.Second

// watch waits in the background for another process that gives the world up, or asks how far this one is.
func (w *world) watch() {
	if !w.shared() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	w.work.Go(func() {
		if _, err := w.cfg.Store.Get(ctx, w.prefix+"ask"); err == nil {
			w.publish()
		}
	})
	w.line.Store(lastwords.Listen(w.cfg.Store, w.prefix+"dead", func(err error, fromStore bool) {
		if fromStore {
			err = w.lostStore(err)
		}
		w.comm.Abort(err)
	}))
	if !w.alive() { // it died before there was a line
		w.tell(context.Cause(w.life))
	}
}

// lostStore is the end of a world whose store, or a process of it, is gone. The store numbers processes; where all have as
// many ranks as this one, the first rank of that process is to blame.
func (w *world) lostStore(err error) error {
	e := comm.Errorf("world", w.cfg.First, comm.Remote, "the store that the processes share: %w", err)
	n := len(w.ranks)
	if s := (*comm.Error)(nil); errors.As(err, &s) && s.Peer >= 0 && s.Peer*n < w.cfg.Size && w.cfg.Size%n == 0 && w.cfg.First%n == 0 {
		e.Peer = s.Peer * n
	}
	return e
}

// has reports whether this process has the rank.
func (w *world) has(rank int) bool { return rank >= w.cfg.First && rank < w.cfg.First+len(w.ranks) }

// publish says how far the local ranks are.
func (w *world) publish() {
	ctx, cancel := context.WithTimeout(context.Background(), publishTime)
	defer cancel()
	for _, r := range w.ranks {
		_ = w.cfg.Store.Set(ctx, w.prefix+"calls/"+strconv.Itoa(r.index), []byte(strconv.FormatUint(r.main.calls.Load(), 10)))
	}
}

// tell lets the other processes know why this one gave the world up.
func (w *world) tell(cause error) {
	if line := w.line.Load(); line != nil && w.numOpen.Load() > 0 {
		line.Tell(cause, w.cfg.First)
	}
}

// askTime bounds the question who is behind.
const askTime = 500 * time.Millisecond

// ask returns how many collectives the ranks of other processes have begun. Those that do not answer are not in the map:
// their processes are gone, or stand still.
func (w *world) ask() map[int]uint64 {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	found := map[int]uint64{}
	if w.cfg.Store.Set(ctx, w.prefix+"ask", nil) != nil {
		return found
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for rank := range w.cfg.Size {
		if w.has(rank) {
			continue
		}
		wg.Go(func() {
			raw, err := w.cfg.Store.Get(ctx, w.prefix+"calls/"+strconv.Itoa(rank))
			n, err2 := strconv.ParseUint(string(raw), 10, 64)
			if err == nil && err2 == nil {
				mu.Lock()
				defer mu.Unlock()
				found[rank] = n
			}
		})
	}
	wg.Wait()
	return found
}

// behind lists the world ranks that c has waited for, as far as they are known: local ones by their counters, others by what
// they answer.
func (w *world) behind(c *conn) []int {
	list := c.missing()
	if list != nil || !w.shared() || c.g.allLocal() {
		return list
	}
	found := w.ask()
	main := c == c.r.main
	for _, rank := range c.g.members {
		if w.has(rank) {
			continue
		}
		if n, ok := found[rank]; !ok || main && n < c.calls.Load() {
			list = append(list, rank)
		}
	}
	slices.Sort(list)
	return list
}

// lost returns the first rank whose process does not answer, after NCCL lost a connection; NoPeer when all do.
func (w *world) lost() int {
	if !w.shared() {
		return comm.NoPeer
	}
	found := w.ask()
	for rank := range w.cfg.Size {
		if _, ok := found[rank]; !ok && !w.has(rank) {
			return rank
		}
	}
	return comm.NoPeer
}
