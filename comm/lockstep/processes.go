package lockstep

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/weftgo/weft/comm"
)

// Processes is how processes that share steps agree; rendezvous.Group is one. Rank 0 of each process speaks for its ranks.
// Errors are comm.Errors whose Peer is a process: Remote when one is lost.
type Processes interface {
	Rank() int // of this process
	Size() int // number of processes
	// Gather is collective: everyone's mine, in order of processes.
	Gather(ctx context.Context, mine []byte) ([][]byte, error)
	// Sleep waits until a process has called Wake with the same n; Wake does not wait.
	Sleep(ctx context.Context, n uint64) error
	Wake(ctx context.Context, n uint64) error
}

// gatherAll brings the records of all processes into l.recv: the ranks of each process gather theirs, its rank 0 exchanges
// them for everyone's, and broadcasts those.
func (l *Lockstep) gatherAll(ctx context.Context) error {
	n := l.c.Size()
	if err := l.gatherLocal(ctx, l.host.Dst.Slice(l.first, l.first+n), l.dev.Dst.Slice(l.first, l.first+n)); err != nil {
		return err
	}
	s := l.cfg.Stream
	if l.c.Rank() == 0 {
		if err := l.exchange(ctx); err != nil {
			if !errors.Is(err, comm.Aborted) { // who ended ctx ends the others, too
				l.c.Abort(err) // the other ranks of this process wait for the broadcast
			}
			return err
		}
		if !l.onHost && n > 1 {
			if err := comm.Copy(l.c, s, l.dev.Dst, l.host.Dst); err != nil {
				return err
			}
		}
	}
	if n == 1 {
		return nil
	}
	if err := l.c.Broadcast(s, l.dev.Dst, 0); err != nil || l.onHost {
		return err
	}
	if err := comm.Copy(l.c, s, l.host.Dst, l.dev.Dst); err != nil {
		return err
	}
	return l.c.Wait(ctx, s)
}

// exchange swaps this process's records for those of all. It ends when this process's world dies.
func (l *Lockstep) exchange(ctx context.Context) error {
	ctx, cancel := l.alive(ctx)
	defer cancel()
	ctx, end := context.WithTimeoutCause(ctx, l.cfg.Timeout, fmt.Errorf("the lockstep's timeout of %v", l.cfg.Timeout))
	defer end()
	n := l.c.Size() * words
	mine := make([]byte, 0, 8*n)
	for _, w := range l.recv[l.first*words:][:n] {
		mine = binary.LittleEndian.AppendUint64(mine, uint64(w))
	}
	all, err := l.cfg.Processes.Gather(ctx, mine)
	if err != nil {
		return err
	}
	for p, b := range all {
		if len(b) != len(mine) {
			return comm.Errorf("lockstep", l.rank, comm.Invalid, "process %d has %d ranks here, process %d has %d: give all the same number",
				p, len(b)/8/words, l.cfg.Processes.Rank(), l.c.Size())
		}
		for i := range n {
			l.recv[p*n+i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
		}
	}
	return nil
}

// alive makes a context that ends with this process's world, too.
func (l *Lockstep) alive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := l.c.World()
	if w == nil {
		return ctx, func() { cancel(nil) }
	}
	stopped, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-w.Done():
			cancel(w.Err())
		case <-stopped:
		}
	}()
	return ctx, sync.OnceFunc(func() {
		close(stopped)
		<-over
		cancel(nil)
	})
}

// Sleep is what all ranks call after an Agreement that says Sleep: it returns when the Bell of this process has been rung since,
// or that of another process. Without Processes it is bell.Wait.
func (l *Lockstep) Sleep(ctx context.Context, bell *Bell, a Agreement) error {
	if l.cfg.Processes == nil || l.c.Rank() != 0 {
		return bell.Wait(ctx, a.Generation)
	}
	n := l.sleep
	l.sleep++
	waiting, cancel := l.alive(ctx)
	woken := make(chan error, 1)
	go func() {
		err := l.cfg.Processes.Sleep(waiting, n)
		bell.Ring()
		woken <- err
	}()
	err := bell.Wait(ctx, a.Generation)
	if err == nil {
		err = l.cfg.Processes.Wake(ctx, n) // also when another woke us: it costs nothing and is never missed
	}
	if err != nil {
		cancel()
	}
	slept := <-woken
	cancel()
	if err == nil {
		err = slept
	}
	if errors.Is(err, comm.Remote) {
		l.c.Abort(err) // the other ranks of this process were woken, and go on to the next step
	}
	return err
}
