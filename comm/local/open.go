package local

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftgo/weft/comm"
)

// MaxRanks is the most ranks a world can have: who has arrived is one 64-bit word.
const MaxRanks = 64

// Config says what to open.
type Config struct {
	Ranks   int           // 1 to MaxRanks; 0 means 1
	Timeout time.Duration // the longest wait for another rank; 0 means 60 s
}

// Open makes a world of ranks in this process. It starts no goroutine; closing the world frees nothing that the garbage
// collector would not, but later calls on it are refused.
func Open(cfg Config) (*comm.World, error) {
	if cfg.Ranks == 0 {
		cfg.Ranks = 1
	}
	if cfg.Ranks < 1 || cfg.Ranks > MaxRanks {
		return nil, comm.Errorf("open local", 0, comm.Invalid, "%d ranks; use 1 to %d", cfg.Ranks, MaxRanks)
	}
	if cfg.Timeout < 0 {
		return nil, comm.Errorf("open local", 0, comm.Invalid, "timeout %v is negative", cfg.Timeout)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 60 * time.Second
	}
	members := make([]int, cfg.Ranks)
	for r := range members {
		members[r] = r
	}
	g := newGroup(members, cfg.Timeout, &life{dead: make(chan struct{})})
	comms := make([]*comm.Comm, cfg.Ranks)
	for r := range comms {
		comms[r] = comm.New(&conn{g: g, rank: r}, r, cfg.Ranks)
	}
	return comm.NewWorld(comms), nil
}

// life is shared by all groups of a world: when one dies, all do.
type life struct {
	once  sync.Once
	dead  chan struct{}
	cause error       // set before dead is closed
	over  atomic.Bool // dead is closed, for a look that costs nothing
}

// kill ends the world; only the first cause counts.
func (l *life) kill(cause error) {
	l.once.Do(func() {
		l.cause = cause
		close(l.dead)
		l.over.Store(true)
	})
}

// alive reports whether nobody killed the world yet.
func (l *life) alive() bool { return !l.over.Load() }
