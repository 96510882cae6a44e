package nodes

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
)

// Node is the ranks of one node in this process.
type Node struct {
	// Inside is the node's world; all of its ranks are in this process.
	Inside *comm.World
	// Between are the ranks' Comms of their columns, by rank in Inside. Each has as many ranks as there are nodes, and its
	// rank is the node's number, the same in all of them.
	Between []*comm.Comm
}

// Open makes this process's part of a world of all nodes: rank i of node n is rank n x (ranks of a node) + i. Nearly always
// one node is given; several may be in one process. Once it is open the world owns what it was given, and closes it. On GPUs
// each rank gets a stream that both drivers use when a call names none, and Open is collective: it runs every operation
// between nodes once, because a driver's first operations may wait for all kernels of a GPU, and later there are kernels that
// wait for other ranks. Errors are Invalid for worlds that do not fit together.
func Open(ctx context.Context, nodes ...Node) (*comm.World, error) {
	s := &shared{}
	var comms []*comm.Comm
	for _, n := range nodes {
		list, err := s.add(n)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		comms = append(comms, list...)
	}
	if len(comms) == 0 {
		return nil, comm.Errorf("open nodes", 0, comm.Invalid, "no nodes given")
	}
	if err := s.warm(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.world = comm.NewWorld(comms)
	s.watch()
	return s.world, nil
}

// shared is what the ranks of this process share.
type shared struct {
	world   *comm.World
	conns   []*conn
	stop    chan struct{}
	watches sync.WaitGroup
	mu      sync.Mutex
	open    int // conns that are not closed
	deaths  map[place]error
}

// add makes the ranks of a node.
func (s *shared) add(n Node) ([]*comm.Comm, error) {
	if n.Inside == nil || len(n.Between) == 0 {
		return nil, comm.Errorf("open nodes", 0, comm.Invalid, "a node without a world inside, or without columns between nodes")
	}
	inside := n.Inside.Local()
	ranks := len(inside)
	node, size := n.Between[0].Rank(), n.Between[0].Size()
	if ranks != n.Inside.Size() || ranks != len(n.Between) {
		return nil, comm.Errorf("open nodes", 0, comm.Invalid, "node %d: %d of its %d ranks are in this process, with %d columns; all must be",
			node, ranks, n.Inside.Size(), len(n.Between))
	}
	var comms []*comm.Comm
	for i, out := range n.Between {
		in := inside[i]
		if out.Rank() != node || out.Size() != size || out.Device() != in.Device() {
			return nil, comm.Errorf("open nodes", node*ranks+i, comm.Invalid, "rank %d of node %d is on %v; its column says rank %d of %d on %v, the first column rank %d of %d",
				i, node, in.Device(), out.Rank(), out.Size(), out.Device(), node, size)
		}
		c := &conn{s: s, in: in, out: out, node: node, nodes: size, local: i, ranks: ranks, rank: node*ranks + i}
		s.conns = append(s.conns, c)
		s.open++
		if dev := in.Device(); dev.Kind == comm.CUDA {
			if err := c.openStream(dev.Index); err != nil {
				return nil, err
			}
		}
		comms = append(comms, comm.New(c, c.rank, size*ranks))
	}
	return comms, nil
}

func (c *conn) openStream(ordinal int) error {
	dev, err := cuda.Open(ordinal)
	if err != nil {
		return err
	}
	c.device = dev
	c.stream, err = dev.NewStream(0)
	return err
}

// warm runs the columns' operations of GPUs, in a small and a large size, since a driver chooses its ways by size.
func (s *shared) warm(ctx context.Context) error {
	errs := make([]error, len(s.conns))
	var wg sync.WaitGroup
	for i, c := range s.conns {
		if c.stream != nil && c.nodes > 1 && c.ranks > 1 {
			wg.Go(func() { errs[i] = c.warm(ctx) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *conn) warm(ctx context.Context) error {
	const large = 1 << 18 // elements
	src, err := comm.Alloc(c.out, dtype.F32, c.nodes, large)
	if err != nil {
		return err
	}
	dst, err := comm.Alloc(c.out, dtype.F32, c.nodes, large)
	if err != nil {
		return err
	}
	s := c.on(comm.Stream{})
	ragged := make([]int, c.nodes)
	for i := range c.nodes - 1 {
		ragged[i] = 1
	}
	even, send, recv := make([]int, c.nodes), make([]int, c.nodes), make([]int, c.nodes)
	for i := range c.nodes {
		even[i], send[i], recv[i] = 1, (c.node+i)%2, (i+c.node)%2
	}
	for _, cols := range []int{1, large} {
		one, all := src.Columns(0, cols), dst.Columns(0, cols)
		if cols == 1 {
			one, all = reshape(src.Slice(0, 1).Columns(0, c.nodes), c.nodes, 1), reshape(dst.Slice(0, 1).Columns(0, c.nodes), c.nodes, 1)
		}
		row := one.Slice(0, 1)
		if err = errors.Join(c.out.AllReduce(s, all, one, comm.Sum), c.out.Broadcast(s, one, 0), c.out.Reduce(s, all, one, comm.Sum, 0),
			c.out.AllGather(s, all, row), c.out.ReduceScatter(s, row, all, comm.Sum), c.out.AllGatherV(s, comm.Host(ragged), comm.Part{Dst: all, Src: one}),
			c.out.ReduceScatterV(s, comm.Host(ragged), comm.Sum, comm.Part{Dst: all, Src: one}),
			c.out.AllToAllV(s, comm.Host(even), comm.Host(even), comm.Part{Dst: all, Src: one}),
			c.out.AllToAllV(s, comm.Host(send), comm.Host(recv), comm.Part{Dst: all, Src: one}), c.out.Wait(ctx, s)); err != nil {
			return err
		}
	}
	return errors.Join(comm.Free(c.out, src), comm.Free(c.out, dst))
}

// watch ends the world when one of those below dies.
func (s *shared) watch() {
	s.stop = make(chan struct{})
	seen := map[*comm.World]bool{}
	for _, c := range s.conns {
		for key, below := range map[place]*comm.Comm{{false, c.node}: c.in, {true, c.local}: c.out} {
			w := below.World()
			if w == nil || seen[w] {
				continue
			}
			seen[w] = true
			s.watches.Go(func() {
				select {
				case <-w.Done():
					s.died(key, c.death(below))
				case <-s.stop:
				}
			})
		}
	}
}

// left notes that a rank has closed; the last one frees what is shared.
func (s *shared) left() error {
	s.mu.Lock()
	s.open--
	last := s.open == 0
	s.mu.Unlock()
	if !last {
		return nil
	}
	close(s.stop)
	s.watches.Wait()
	return s.close()
}

func (s *shared) close() error {
	var errs []error
	for _, c := range s.conns {
		if c.stream != nil {
			errs = append(errs, c.stream.Close())
		}
		if c.device != nil {
			errs = append(errs, c.device.Close())
		}
	}
	return errors.Join(errs...)
}

// translate gives an error of a world below this rank's name and, where it blames a rank of that world, that one's.
func (c *conn) translate(below *comm.Comm, op string, err error) error {
	e := (*comm.Error)(nil)
	if err == nil || !errors.As(err, &e) {
		return err
	}
	out := &comm.Error{Op: op, Rank: c.rank, Peer: comm.NoPeer, Code: e.Code, Err: fmt.Errorf("%s: %w", c.where(below), err)}
	if e.Peer != comm.NoPeer {
		out.Peer = c.number(below, e.Peer)
	}
	return out
}

// where names a world below.
func (c *conn) where(below *comm.Comm) string {
	if below == c.out {
		return fmt.Sprintf("between nodes, rank %d of each", c.local)
	}
	return fmt.Sprintf("inside node %d", c.node)
}

// number is what a rank of a world below is in the whole.
func (c *conn) number(below *comm.Comm, rank int) int {
	if below == c.out {
		return rank*c.ranks + c.local
	}
	return c.node*c.ranks + rank
}

// death translates what ended a world below, which happened to the rank that it names.
func (c *conn) death(below *comm.Comm) error {
	err := c.translate(below, "world", below.World().Err())
	if e, own := (*comm.Error)(nil), (*comm.Error)(nil); errors.As(err, &e) && errors.As(e.Err, &own) {
		e.Rank = c.number(below, own.Rank)
	}
	return err
}

// Close closes both worlds' ranks, at once for all local ranks; see comm.Conn.
func (c *conn) Close(ctx context.Context) error {
	if c.closed.Swap(true) {
		return nil
	}
	var errs []error
	if c.world().Err() == nil {
		errs = append(errs, c.Wait(ctx, comm.Stream{}))
	}
	for _, b := range c.scratch {
		errs = append(errs, comm.Free(c.in, b))
	}
	errs = append(errs, c.out.Close(ctx), c.in.Close(ctx))
	return errors.Join(append(errs, c.s.left())...)
}
