package p2p

import (
	"context"
	"encoding/json"
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
	shared  uint16        // kernels.SameGPU, kernels.Foreign
	expired atomic.Uint64 // members that a host's wait did not see in time

	key   string // the beginning of the group's keys in the store
	local int    // members of this process

	mu       sync.Mutex
	next     *assembly // of the host halves of Split and AllocSymmetric
	numCalls int       // of assemblies
}

func newGroup(w *world, members []*rank) *group {
	g := &group{w: w, id: w.numGroups.Add(1), members: members, conns: make([]*conn, len(members)), shared: kernels.SameGPU}
	for i, r := range members {
		g.conns[i] = &conn{g: g, r: r, rank: i}
		g.conns[i].log.away = r.away
		if r.gpu != members[0].gpu {
			g.shared &^= kernels.SameGPU
		}
		if r.away {
			g.shared |= kernels.Foreign
		} else {
			g.local++
		}
	}
	if g.shared&kernels.Foreign != 0 {
		g.shared &^= kernels.SameGPU
	}
	return g
}

// foreign reports whether members are in other processes.
func (g *group) foreign() bool { return g.shared&kernels.Foreign != 0 }

// conn is one rank's end of a group. Of a rank of another process there are its addresses alone, as it sees them.
type conn struct {
	g      *group
	r      *rank
	rank   int // in the group
	ctl    uintptr
	small  uintptr // where small all-reduces arrive
	log    log
	args   *kernels.Args // an allocation of its own: C gets its address
	closed atomic.Bool
	limit  int          // of the blocks of operations; 0: none
	calls  atomic.Int64 // collectives that were enqueued, for messages about who is missing
}

// table is where a member of a group can be reached, as it sees its memory.
type table struct {
	Words, Ctl, Small uintptr
	Err               string `json:",omitempty"`
}

// connect opens conns, which are Conns of new groups: conns[i] is the one of g's member i, or nil. It is collective over g; when
// it returns, every Conn of this process can launch.
func (g *group) connect(ctx context.Context, name string, conns []*conn) error {
	mine := make([][]byte, len(conns))
	for i, c := range conns {
		if !g.members[i].away {
			var t table
			if c != nil {
				t = c.join()
			}
			mine[i] = encode(t)
		}
	}
	all, err := g.exchange(ctx, name, mine)
	if err != nil {
		return err
	}
	for i, b := range all {
		var t table
		if err := json.Unmarshal(b, &t); err != nil {
			return comm.Errorf(name, g.members[i].index, comm.Internal, "%q: %w", b, err)
		}
		if t.Err != "" {
			return comm.Errorf(name, g.members[i].index, comm.Internal, "%s", t.Err)
		}
		if c := conns[i]; c != nil && c.r.away {
			c.r.words, c.ctl, c.small = t.Words, t.Ctl, t.Small
		}
	}
	for i, c := range conns {
		if c == nil || c.r.away {
			continue
		}
		if err := c.connect(); err != nil {
			return comm.Errorf(name, g.members[i].index, comm.Internal, "%w", err)
		}
	}
	return nil
}

// join takes the memory of a member's Conn.
func (c *conn) join() (t table) {
	var err error
	c.args = new(kernels.Args)
	c.ctl, err = c.r.zeroed(int(unsafe.Sizeof(kernels.Ctl{})))
	if err == nil {
		c.small, err = c.r.zeroed(kernels.SmallBuffer(len(c.g.members)))
	}
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.conns = append(c.r.conns, c)
	if err != nil {
		return table{Err: err.Error()}
	}
	return table{Words: c.r.words, Ctl: c.ctl, Small: c.small}
}

// connect writes the member's tables: where its peers' are.
func (c *conn) connect() error {
	w := c.g.w
	head := kernels.Ctl{
		Timeout:   uint64(w.cfg.Timeout),
		HostAbort: uint64(w.pinned.Addr()),
		Records:   uint64(w.pinned.Addr()) + uint64((c.r.index-w.cfg.FirstRank+1)*recordBytes),
		Rank:      uint32(c.rank), Size: uint32(len(c.g.members)),
		WorldRank: uint32(c.r.index), WorldSize: uint32(len(w.ranks)),
		Group: c.g.id,
	}
	for i, p := range c.g.conns {
		shift := c.r.shift(p.r)
		head.Peers[i], head.Small[i], head.Shift[i] = uint64(p.ctl+shift), uint64(p.small+shift), uint64(shift)
	}
	for i, r := range w.ranks {
		head.World[i] = uint64(r.words + c.r.shift(r))
	}
	const bytes = unsafe.Offsetof(head.Done) // the rest is zero already, and peers may be writing to it
	copy(c.r.memory.Pinned.Bytes()[:bytes], unsafe.Slice((*byte)(unsafe.Pointer(&head)), bytes))
	c.args.Ctl = uint64(c.ctl)
	c.r.gpu.kernels.Group(c.args.Ctl, len(c.g.members))
	return c.r.gpu.aside(func(s *cuda.Stream) error { return s.Copy(c.ctl, c.r.memory.Pinned.Addr(), int(bytes)) })
}

// Device says where the rank's buffers live.
func (c *conn) Device() comm.Device { return c.r.device() }

// Abort ends the whole world.
func (c *conn) Abort(cause error) { c.g.w.kill(cause) }

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

// missing is the members of this process that have enqueued fewer collectives than c.
func (c *conn) missing() (set uint64) {
	for i, p := range c.g.conns {
		if !p.r.away && p.calls.Load() < c.calls.Load() {
			set |= 1 << i
		}
	}
	return set
}
