package p2p

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/kernels"
)

// group is the ranks that Open, or one Split, put together.
type group struct {
	w       *world
	id      uint64
	members []*rank
	conns   []*conn
	shared  uint16        // 1: all members are on one GPU
	expired atomic.Uint64 // members that a host's wait did not see in time

	mu   sync.Mutex
	next *assembly // of the host halves of Split and AllocSymmetric
}

func newGroup(w *world, members []*rank) *group {
	g := &group{w: w, id: w.numGroups.Add(1), members: members, conns: make([]*conn, len(members)), shared: 1}
	for _, r := range members {
		if r.gpu != members[0].gpu {
			g.shared = 0
		}
	}
	return g
}

// conn is one rank's end of a group.
type conn struct {
	g      *group
	r      *rank
	rank   int // in the group
	ctl    uintptr
	small  uintptr // where small all-reduces arrive
	log    log
	args   *kernels.Args // an allocation of its own: C gets its address
	closed atomic.Bool
	calls  atomic.Int64 // collectives that were enqueued, for messages about who is missing
}

// join makes a member's Conn with its tables; connect follows when all members have one.
func (g *group) join(index int) (*conn, error) {
	c := &conn{g: g, r: g.members[index], rank: index, args: new(kernels.Args)}
	var err error
	c.ctl, err = c.r.zeroed(int(unsafe.Sizeof(kernels.Ctl{})))
	if err == nil {
		c.small, err = c.r.zeroed(kernels.SmallBuffer(len(g.members)))
	}
	g.conns[index] = c
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.conns = append(c.r.conns, c)
	return c, err
}

// connect writes the member's tables: where its peers' are.
func (c *conn) connect() error {
	w := c.g.w
	head := kernels.Ctl{
		Timeout:   uint64(w.cfg.Timeout),
		HostAbort: uint64(w.pinned.Addr()),
		Records:   uint64(w.pinned.Addr()) + uint64((c.r.index+1)*recordBytes),
		Rank:      uint32(c.rank), Size: uint32(len(c.g.members)),
		WorldRank: uint32(c.r.index), WorldSize: uint32(len(w.ranks)),
		Group: c.g.id,
	}
	for i, p := range c.g.conns {
		head.Peers[i], head.Small[i] = uint64(p.ctl), uint64(p.small)
	}
	for i, r := range w.ranks {
		head.World[i] = uint64(r.words)
	}
	const bytes = unsafe.Offsetof(head.Done) // the rest is zero already, and peers may be writing to it
	copy(c.r.bounce.Bytes()[:bytes], unsafe.Slice((*byte)(unsafe.Pointer(&head)), bytes))
	c.args.Ctl = uint64(c.ctl)
	return c.r.gpu.aside(func(s *cuda.Stream) error { return s.Copy(c.ctl, c.r.bounce.Addr(), int(bytes)) })
}

// Device says where the rank's buffers live.
func (c *conn) Device() comm.Device { return c.r.device() }

// Abort ends the whole world.
func (c *conn) Abort(cause error) { c.g.w.kill(cause) }

// stream returns where work given to s goes. weft's own stream is the zero Stream.
func (c *conn) stream(s comm.Stream) (*cuda.Stream, error) {
	r := c.r
	if s.Handle == 0 {
		return r.own, nil
	}
	if st := r.adopted[s.Handle]; st != nil {
		return st, nil
	}
	if s.Handle <= 2 && r.gpu.ranks > 1 {
		return nil, errors.New("the default streams (handles 1 and 2) wait for all ranks of the GPU, which wait for each other; use a stream made with cudaStreamNonBlocking")
	}
	st, err := r.gpu.dev.Adopt(s.Handle)
	if err != nil {
		return nil, err
	}
	r.adopted[s.Handle] = st
	return st, nil
}

// order makes work enqueued on st follow the rank's latest operation, which went to another stream.
func (r *rank) order(st *cuda.Stream) error {
	if st == r.last {
		return nil
	}
	capturing, err := st.Capturing()
	if err != nil || capturing {
		return err // a graph's order is the caller's
	}
	if capturing, err = r.last.Capturing(); err == nil && !capturing {
		err = errors.Join(r.event.Record(r.last), st.WaitEvent(r.event))
	}
	r.last = st
	return err
}

// worldRanks lists the world ranks of a set of members.
func (g *group) worldRanks(set uint64) (list []int) {
	for i, r := range g.members {
		if set>>i&1 != 0 {
			list = append(list, r.index)
		}
	}
	slices.Sort(list)
	return list
}

// missing is the members that have enqueued fewer collectives than c.
func (c *conn) missing() (set uint64) {
	for i, p := range c.g.conns {
		if p.calls.Load() < c.calls.Load() {
			set |= 1 << i
		}
	}
	return set
}
