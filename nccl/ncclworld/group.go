package ncclworld

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/nccl"
	"github.com/weftgo/weft/nccl/internal/notes"
	"github.com/weftgo/weft/nccl/internal/recipe"
)

// groupKey names a group while its local members come together: what they split, their how manyth call that was, and their
// color.
type groupKey struct {
	parent, call uint64
	color        int
}

// group is the ranks that Open, or one Split, put together.
type group struct {
	w        *world
	id       uint64
	members  []int // their ranks in the world
	numLocal int   // members in this process
	joined   int   // of them, by Split; guarded by w.mu
	conns    []atomic.Pointer[conn]
	late     atomic.Pointer[[]int] // world ranks that a wait gave up on

	generation atomic.Int64 // how often the members disagreed and the communicators were made anew
	mu         sync.Mutex
	verdict    verdict // of the latest disagreement
}

func newGroup(w *world, members []int) *group {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.numGroups++
	g := &group{w: w, id: w.numGroups, members: members, conns: make([]atomic.Pointer[conn], len(members))}
	for _, m := range members {
		if m >= w.cfg.First && m < w.cfg.First+len(w.cfg.Devices) {
			g.numLocal++
		}
	}
	return g
}

// allLocal reports whether this process has all members.
func (g *group) allLocal() bool { return g.numLocal == len(g.members) }

// conn is one rank's end of a group.
type conn struct {
	w          *world
	g          *group
	r          *rank
	rank       int // in the group
	current    atomic.Pointer[nccl.Communicator]
	generation int64 // of g, as far as this rank was told
	closed     atomic.Bool
	recipe     recipe.Recipe

	calls    atomic.Uint64 // collectives begun
	notes    [numNotes]notes.Note
	sent     []atomic.Uint64 // messages begun, by member
	received []atomic.Uint64
	messages []atomic.Pointer[mailbox] // what the latest were, by member
}

// join makes the Conn of a local member.
func (g *group) join(r *rank, member int, raw *nccl.Communicator) *conn {
	n := len(g.members)
	c := &conn{w: g.w, g: g, r: r, rank: member, sent: make([]atomic.Uint64, n), received: make([]atomic.Uint64, n),
		messages: make([]atomic.Pointer[mailbox], n), recipe: recipe.Recipe{Rank: member, Ranks: n, Ragged: g.w.cfg.Ragged, Word: uint64(r.word)}}
	c.current.Store(raw)
	g.conns[member].Store(c)
	r.add(c)
	return c
}

// raw returns the communicator in use.
func (c *conn) raw() *nccl.Communicator { return c.current.Load() }

// Communicator returns NCCL's communicator below the Conn, for calls that comm has no name for. It is the driver's: the caller
// neither ends it nor uses it while an operation of the Comm is being called.
func (c *conn) Communicator() *nccl.Communicator { return c.raw() }

// Device says where the rank's buffers live.
func (c *conn) Device() comm.Device { return c.r.device() }

// Abort ends this process's part of the world, and tells the others through the store.
func (c *conn) Abort(cause error) { c.w.kill(cause) }

// missing lists the world ranks that are known to be behind c: local members that began fewer collectives, or have not sent
// or received a message that c waits for.
func (c *conn) missing() []int {
	var list []int
	for i := range c.g.conns {
		p := c.g.conns[i].Load()
		if p == nil || p == c {
			continue
		}
		if p.calls.Load() < c.calls.Load() || p.sent[c.rank].Load() < c.received[i].Load() || p.received[c.rank].Load() < c.sent[i].Load() {
			list = append(list, c.g.members[i])
		}
	}
	slices.Sort(list)
	return list
}

// names is a list of ranks in words, such as "rank 3" or "ranks 3, 5".
func names(ranks []int) string {
	var b strings.Builder
	for i, r := range ranks {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, r)
	}
	if len(ranks) == 1 {
		return "rank " + b.String()
	}
	return "ranks " + b.String()
}
