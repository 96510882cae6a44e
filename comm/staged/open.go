package staged

import (
	"sync"
	"sync/atomic"

	"github.com/weftgo/weft/comm"
)

// defaultWorkspace is large enough for the layers of the examples, and small beside a GPU's memory.
const defaultWorkspace = 16 << 20

// Config says how to stage.
type Config struct {
	// Workspace is the bytes of device memory beyond which a rank's call is cut. 0 means 16 MiB.
	Workspace int
}

// Open makes a world of ranks on the CPU whose collectives run on the devices of world, which it takes over: the caller uses
// and closes only what Open returns. When Open fails, world stays the caller's. The driver of world must have memory of its
// device (comm.Memory); without it, without a world, and for ranks that are
// on the CPU already, the error is Invalid.
func Open(world *comm.World, cfg Config) (*comm.World, error) {
	if cfg.Workspace == 0 {
		cfg.Workspace = defaultWorkspace
	}
	if cfg.Workspace < 0 {
		return nil, comm.Errorf("open staged", 0, comm.Invalid, "a workspace of %d bytes", cfg.Workspace)
	}
	if world == nil {
		return nil, comm.Errorf("open staged", 0, comm.Invalid, "no world: open one with a driver of GPUs first")
	}
	var comms []*comm.Comm
	b := &bond{below: world, stop: make(chan struct{})}
	for _, c := range world.Local() {
		conn, err := newConn(c.Conn(), c.Rank(), c.Rank(), c.Size(), cfg.Workspace)
		if err != nil {
			return nil, err
		}
		conn.bond = b
		b.conns = append(b.conns, conn)
		comms = append(comms, comm.New(conn, c.Rank(), c.Size()))
	}
	w := comm.NewWorld(comms)
	b.open.Store(int32(len(comms)))
	b.watch.Go(func() {
		select {
		case <-b.below.Done():
			w.Abort(b.below.Err())
		case <-b.stop:
		}
	})
	return w, nil
}

// bond ends the world when the one below dies by itself, as one of several processes does when another is lost.
type bond struct {
	below *comm.World
	conns []*conn
	open  atomic.Int32 // ranks of this process that have not closed
	stop  chan struct{}
	watch sync.WaitGroup
}

// left notes that a rank has closed.
func (b *bond) left() {
	if b.open.Add(-1) == 0 {
		close(b.stop)
		b.watch.Wait()
	}
}
