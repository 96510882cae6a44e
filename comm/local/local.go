package local

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weftgo/weft/comm"
)

// Config says what to open.
type Config struct {
	Ranks   int           // 1 to 64
	Timeout time.Duration // the longest wait for another rank; 0 means 60 s
}

// Open makes a world of ranks in this process.
func Open(cfg Config) (*comm.World, error) {
	if cfg.Ranks < 1 || cfg.Ranks > 64 {
		return nil, comm.Errorf("open local", 0, comm.Invalid, "%d ranks; use 1 to 64", cfg.Ranks)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 60 * time.Second
	}
	life := &life{dead: make(chan struct{})}
	g := newGroup(cfg.Ranks, cfg.Timeout, life)
	comms := make([]*comm.Comm, cfg.Ranks)
	for r := range comms {
		comms[r] = comm.New(&conn{g: g, rank: r}, r, cfg.Ranks)
	}
	return comm.NewWorld(comms), nil
}

// life is shared by a world's groups: when one dies, all do.
type life struct {
	once sync.Once
	dead chan struct{}
	err  error
}

func (l *life) kill(err error) { l.once.Do(func() { l.err = err; close(l.dead) }) }

type group struct {
	size    int
	timeout time.Duration
	life    *life
	mu      sync.Mutex
	round   *round
	boxes   [][]chan *comm.Op // [from][to]
}

type round struct {
	ops   []*comm.Op
	keys  [][2]int
	left  int
	done  chan struct{}
	errs  []error
	group map[int]*group
}

func newGroup(n int, timeout time.Duration, l *life) *group {
	g := &group{size: n, timeout: timeout, life: l}
	g.boxes = make([][]chan *comm.Op, n)
	for i := range g.boxes {
		g.boxes[i] = make([]chan *comm.Op, n)
		for j := range g.boxes[i] {
			g.boxes[i][j] = make(chan *comm.Op)
		}
	}
	g.round = g.newRound()
	return g
}

func (g *group) newRound() *round {
	return &round{ops: make([]*comm.Op, g.size), keys: make([][2]int, g.size), errs: make([]error, g.size),
		left: g.size, done: make(chan struct{})}
}

type conn struct {
	g    *group
	rank int
}

func (c *conn) Device() comm.Device                     { return comm.Device{} }
func (c *conn) Wait(context.Context, comm.Stream) error { return nil }
func (c *conn) Abort(cause error)                       { c.g.life.kill(cause) }
func (c *conn) Close(context.Context) error             { return nil }

func (c *conn) Do(_ comm.Stream, op *comm.Op) error {
	op.Stats.Launches = 1
	if op.Kind == comm.Send || op.Kind == comm.Recv {
		return c.pair(op)
	}
	r, err := c.meet(op, [2]int{}, func(r *round) { r.run() })
	if err != nil {
		return err
	}
	return r.errs[c.rank]
}

// meet waits until all ranks are in the round; the last one runs finish before the others go on.
func (c *conn) meet(op *comm.Op, key [2]int, finish func(*round)) (*round, error) {
	g := c.g
	g.mu.Lock()
	r := g.round
	r.ops[c.rank], r.keys[c.rank] = op, key
	r.left--
	if r.left == 0 {
		finish(r)
		g.round = g.newRound()
		close(r.done)
	}
	g.mu.Unlock()
	start := time.Now()
	t := time.NewTimer(g.timeout)
	defer t.Stop()
	select {
	case <-r.done:
	case <-g.life.dead:
		return nil, &comm.Error{Op: op.String(), Rank: c.rank, Peer: comm.NoPeer, Code: comm.Aborted, Err: g.life.err}
	case <-t.C:
		g.mu.Lock()
		missing := comm.NoPeer
		for i, o := range r.ops {
			if o == nil {
				missing = i
				break
			}
		}
		g.mu.Unlock()
		err := &comm.Error{Op: op.String(), Rank: c.rank, Peer: missing, Code: comm.Timeout, Err: fmt.Errorf("waited %v", g.timeout)}
		g.life.kill(err)
		return nil, err
	}
	op.Stats.Wait = time.Since(start)
	return r, nil
}

func (c *conn) Split(ctx context.Context, color, key int) (comm.Conn, int, int, error) {
	op := &comm.Op{Kind: comm.Barrier}
	r, err := c.meet(op, [2]int{color, key}, func(r *round) {
		r.group = map[int]*group{}
		for _, k := range r.keys {
			if k[0] >= 0 && r.group[k[0]] == nil {
				n := 0
				for _, q := range r.keys {
					if q[0] == k[0] {
						n++
					}
				}
				r.group[k[0]] = newGroup(n, c.g.timeout, c.g.life)
			}
		}
	})
	if err != nil || color < 0 {
		return nil, 0, 0, err
	}
	rank := 0
	for i, q := range r.keys {
		if q[0] == color && (q[1] < key || q[1] == key && i < c.rank) {
			rank++
		}
	}
	return &conn{g: r.group[color], rank: rank}, rank, r.group[color].size, nil
}

func (c *conn) pair(op *comm.Op) error {
	t := time.NewTimer(c.g.timeout)
	defer t.Stop()
	if op.Kind == comm.Send {
		select {
		case c.g.boxes[c.rank][op.Peer] <- op:
		case <-c.g.life.dead:
			return &comm.Error{Op: op.String(), Rank: c.rank, Peer: op.Peer, Code: comm.Aborted, Err: c.g.life.err}
		case <-t.C:
			return &comm.Error{Op: op.String(), Rank: c.rank, Peer: op.Peer, Code: comm.Timeout}
		}
		<-c.g.boxes[c.rank][op.Peer]
		return nil
	}
	box := c.g.boxes[op.Peer][c.rank]
	select {
	case s := <-box:
		copyRows(op.Parts[0].Dst, s.Parts[0].Src)
		box <- nil
	case <-c.g.life.dead:
		return &comm.Error{Op: op.String(), Rank: c.rank, Peer: op.Peer, Code: comm.Aborted, Err: c.g.life.err}
	case <-t.C:
		return &comm.Error{Op: op.String(), Rank: c.rank, Peer: op.Peer, Code: comm.Timeout}
	}
	return nil
}
