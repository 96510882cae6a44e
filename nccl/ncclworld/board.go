package ncclworld

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/nccl"
	"github.com/weftgo/weft/nccl/internal/notes"
)

// NCCL cannot tell ranks that are in different calls: they hang or mix their data. The local members of a group compare their
// calls: each notes what it calls before it enqueues, then looks at the notes of the others, so that of two members the later
// one sees a difference. It says so to all of them, ends what was enqueued, and makes the communicators anew.

// numNotes is how many calls a member may be ahead of another and still be compared.
const numNotes = 64

// agree notes a collective and compares. text is for calls that are no Op.
func (c *conn) agree(op *comm.Op, text string) error {
	k := c.calls.Add(1)
	if c.g.numLocal == 1 {
		return nil
	}
	signature := notes.Hash(text)
	if op != nil {
		signature = op.Signature()
	}
	c.notes[k%numNotes].Write(k, signature, op, text)
	pairs := op != nil && op.Kind == comm.AllToAllV
	for i := range c.g.conns {
		p := c.g.conns[i].Load()
		if p == nil || p == c {
			continue
		}
		n := &p.notes[k%numNotes]
		if n.Differs(k, signature) || pairs && n.ID() == k && c.unequal(i, n) != "" {
			return c.judge(func() *verdict { return c.g.compare(k) })
		}
	}
	return nil
}

// refuse answers a call that cannot be done with err, or, where the members are all here and disagree, with that.
func (c *conn) refuse(op *comm.Op, err error) error {
	if !c.g.allLocal() || c.g.numLocal == 1 || op.Kind == comm.Send || op.Kind == comm.Recv {
		return err
	}
	if e := c.agree(op, ""); e != nil {
		return e
	}
	k := c.calls.Load()
	if !c.meet(func(p *conn) bool { return p.notes[k%numNotes].ID() >= k || p.calls.Load() > k }) {
		return err
	}
	if c.stale() {
		return c.report(op.Label())
	}
	if v := c.g.compare(k); v != nil {
		return c.judge(func() *verdict { return v })
	}
	return err
}

// meet waits until every local member fulfils the condition, or is known never to.
func (c *conn) meet(condition func(p *conn) bool) bool {
	limit := time.Now().Add(c.w.cfg.Timeout)
	for c.w.alive() && c.generation == c.g.generation.Load() && time.Now().Before(limit) {
		all := true
		for i := range c.g.conns {
			p := c.g.conns[i].Load()
			all = all && (p == nil || condition(p))
		}
		if all {
			return true
		}
		time.Sleep(50 * time.Microsecond)
	}
	return c.w.alive()
}

// verdict is a disagreement, as all members are told. a and b are the members that differ.
type verdict struct {
	a, b int
	text string
	base uint64 // from where the members count on
}

// compare finds the first two local members whose call k differs; nil when all agree.
func (g *group) compare(k uint64) *verdict {
	var first *conn
	for i := range g.conns {
		p := g.conns[i].Load()
		if p == nil || p.notes[k%numNotes].ID() != k {
			continue
		}
		if first == nil {
			first = p
			continue
		}
		a, b := &first.notes[k%numNotes], &p.notes[k%numNotes]
		if b.Differs(k, a.Signature()) {
			return &verdict{a: first.rank, b: i, text: fmt.Sprintf("ranks disagree: rank %d calls %s, rank %d calls %s",
				g.members[first.rank], a.String(), g.members[i], b.String())}
		}
	}
	for i := range g.conns {
		for j := range g.conns {
			p, q := g.conns[i].Load(), g.conns[j].Load()
			if p == nil || q == nil || p.notes[k%numNotes].ID() != k || q.notes[k%numNotes].ID() != k {
				continue
			}
			if text := p.unequal(j, &q.notes[k%numNotes]); text != "" {
				return &verdict{a: i, b: j, text: text}
			}
		}
	}
	return nil
}

// unequal says whether what c sends to a peer is not what the peer's note expects, or the other way round.
func (c *conn) unequal(peer int, theirs *notes.Note) string {
	mine := &c.notes[theirs.ID()%numNotes]
	sends, expects, ok := mine.Rows(peer)
	theirSends, theirExpects, ok2 := theirs.Rows(c.rank)
	a, b := c.g.members[c.rank], c.g.members[peer]
	switch {
	case !ok || !ok2:
	case sends != theirExpects:
		return fmt.Sprintf("rank %d sends %d rows to rank %d, which expects %d", a, sends, b, theirExpects)
	case theirSends != expects:
		return fmt.Sprintf("rank %d sends %d rows to rank %d, which expects %d", b, theirSends, a, expects)
	}
	return ""
}

// mailbox is the latest messages between c and one other member.
type mailbox struct{ sent, received [8]notes.Note }

// box returns the mailbox for a member.
func (c *conn) box(member int) *mailbox {
	if b := c.messages[member].Load(); b != nil {
		return b
	}
	c.messages[member].CompareAndSwap(nil, new(mailbox))
	return c.messages[member].Load()
}

// agreeMessage is agree for Send and Recv, which are matched in order by pair.
func (c *conn) agreeMessage(op *comm.Op) error {
	peer := op.Peer
	counter := &c.sent[peer]
	if op.Kind == comm.Recv {
		counter = &c.received[peer]
	}
	k := counter.Add(1)
	p := c.g.conns[peer].Load()
	if p == nil {
		return nil
	}
	h := uint64(len(op.Parts))
	for i := range op.Parts {
		b := &op.Parts[i].Src
		if op.Kind == comm.Recv {
			b = &op.Parts[i].Dst
		}
		h = ((h*31+uint64(b.DType()))*1000003+uint64(b.Rows()))*1000003 + uint64(b.Cols())
	}
	mine, theirs := &c.box(peer).sent[k%8], &p.box(c.rank).received[k%8]
	if op.Kind == comm.Recv {
		mine, theirs = &c.box(peer).received[k%8], &p.box(c.rank).sent[k%8]
	}
	mine.Write(k, h, op, "")
	if !theirs.Differs(k, h) {
		return nil
	}
	a, b, first, second := c.rank, peer, mine, theirs
	if op.Kind == comm.Recv {
		a, b, first, second = peer, c.rank, theirs, mine
	}
	return c.judge(func() *verdict {
		return &verdict{a: a, b: b, text: fmt.Sprintf("ranks disagree: rank %d calls %s, rank %d calls %s",
			c.g.members[a], first.String(), c.g.members[b], second.String())}
	})
}

// judge settles a disagreement for all members, unless another member has, and returns this one's error.
func (c *conn) judge(find func() *verdict) error {
	g := c.g
	k := c.calls.Load()
	c.meet(func(p *conn) bool { return p.calls.Load() >= k })
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.generation.Load() == c.generation && c.w.alive() {
		v := find()
		if v == nil {
			v = &verdict{a: c.rank, b: c.rank, text: "ranks disagree about a call that is long ago"}
		}
		g.verdict = *v
		for i := range g.conns {
			if p := g.conns[i].Load(); p != nil {
				g.verdict.base = max(g.verdict.base, p.calls.Load()+1000)
			}
		}
		g.generation.Add(1)
		if err := g.renew(); err != nil {
			c.w.comm.Abort(c.tell("", g.verdict, err))
		}
	}
	if g.generation.Load() == c.generation {
		return c.w.deadError("", c.r.index)
	}
	return c.told("")
}

// told tells this rank of the latest disagreement, once.
func (c *conn) told(op string) error {
	c.generation = c.g.generation.Load()
	v := c.g.verdict
	c.calls.Store(v.base)
	for i := range c.sent {
		c.sent[i].Store(v.base)
		c.received[i].Store(v.base)
	}
	return c.tell(op, v, nil)
}

func (c *conn) tell(op string, v verdict, more error) error {
	e := &comm.Error{Op: op, Rank: c.r.index, Peer: c.g.members[v.a], Code: comm.Invalid, Err: fmt.Errorf("%s", v.text)}
	if v.a == c.rank {
		e.Peer = c.g.members[v.b]
	}
	if e.Peer == c.r.index {
		e.Peer = comm.NoPeer
	}
	if more != nil {
		e.Err = fmt.Errorf("%s; %w", v.text, more)
	}
	return e
}

// stale reports whether the members disagreed and this rank was not told yet.
func (c *conn) stale() bool { return c.generation != c.g.generation.Load() }

// report tells a stale rank, once the communicators are new.
func (c *conn) report(op string) error {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	return c.told(op)
}

// renew ends the members' communicators with all that hangs in them, and makes new ones. g.mu is held.
func (g *group) renew() error {
	if !g.allLocal() {
		return fmt.Errorf("ranks of other processes are in the call, so the world ends")
	}
	devices, numbers := make([]*cuda.Device, len(g.conns)), make([]int, len(g.conns))
	var wg sync.WaitGroup
	for i := range g.conns {
		p := g.conns[i].Load()
		if p == nil || p.closed.Load() {
			return fmt.Errorf("rank %d has closed, so the world ends", g.members[i])
		}
		devices[i], numbers[i] = p.r.dev, i
		wg.Go(func() { _ = p.raw().Abort() }) // it fails for an operation that hangs: that is why
	}
	wg.Wait()
	id, err := nccl.UniqueID()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.w.cfg.Timeout)
	defer cancel()
	raws, err := nccl.NewGroup(ctx, devices, len(g.conns), numbers, id, g.w.cfg.Options)
	if err != nil {
		return err
	}
	for i, raw := range raws {
		g.conns[i].Load().current.Store(raw)
	}
	if !g.w.alive() {
		for _, raw := range slices.Backward(raws) {
			_ = raw.Abort() // the world died meanwhile and did not know of them
		}
	}
	return nil
}
