package twolevel

import (
	"context"
	"errors"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/kernels"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// grid is a Conn of all ranks, of the one collective that they need when they agree on a configuration: an all_gather.
type grid struct {
	inside, between *comm.Comm
	all             *comm.Comm // over this Conn
}

// seated is a grid of GPUs: kernels run as the driver inside lets them.
type seated struct {
	*grid
	kernels.Seater
}

// HostPlans says that the kernels of package alltoall have no part in it.
func (*seated) HostPlans() {}

func newGrid(inside, between *comm.Comm) *grid {
	g := &grid{inside: inside, between: between}
	rank, size := between.Rank()*inside.Size()+inside.Rank(), between.Size()*inside.Size()
	var conn comm.Conn = g
	if seater, ok := inside.Conn().(kernels.Seater); ok {
		conn = &seated{g, seater}
	}
	if w := inside.World(); w != nil && w == between.World() { // groups of one world: errors name its ranks
		g.all = inside.Group(conn, rank, size)
	} else {
		g.all = comm.New(conn, rank, size)
	}
	return g
}

// check refuses groups that are not the rows and columns of one matrix. Ranks gather inside, between with what they found, and inside
// again, whatever they find: those that see nothing wrong themselves hear of it, and none waits for one that has left.
func (g *grid) check(ctx context.Context) error {
	var found error // what this rank saw, which says more than what it heard
	var heard bool
	for i, what := range []string{"of one node", "of one number", "of one node"} {
		level, other := g.inside, g.between
		if i == 1 {
			level, other = other, level
		}
		const n = 3
		all, own := make([]int64, n*level.Size()), []int64{int64(other.Rank()), int64(other.Size()), 0}
		if found != nil || heard {
			own[2] = 1
		}
		if err := exchange.GatherWords(ctx, level, all, own); err != nil {
			if found != nil && errors.Is(err, comm.Aborted) { // ranks that heard of it first have left
				return found
			}
			return err
		}
		for r := range level.Size() {
			its := all[n*r : n*r+n]
			heard = heard || its[2] != 0
			if found == nil && (its[0] != own[0] || its[1] != own[1]) {
				found = g.invalid("rank %d of %d of its other group, and a rank %s says %d of %d", own[0], own[1], what, its[0], its[1])
			}
		}
	}
	if found == nil && heard {
		found = g.invalid("other ranks found their groups wrong; their own errors say how")
	}
	return found
}

// invalid is an error about the groups.
func (g *grid) invalid(format string, args ...any) error {
	return comm.Errorf("alltoall", g.all.WorldRank(), comm.Invalid, "%w; the groups inside and between nodes must be the rows and columns of one matrix",
		fmt.Errorf(format, args...))
}

// Device says where the rank's buffers live.
func (g *grid) Device() comm.Device { return g.inside.Device() }

// Do gathers between nodes, then inside, one node's rows at a time. Other collectives are Unavailable.
func (g *grid) Do(s comm.Stream, op *comm.Op) error {
	if op.Kind != comm.AllGather {
		return comm.Errorf(op.Label(), g.all.WorldRank(), comm.Unavailable, "%v across both levels", op.Kind)
	}
	for _, p := range op.Parts {
		if err := g.gather(s, p); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) gather(s comm.Stream, p comm.Part) (err error) {
	rows, ranks := p.Src.Rows(), g.inside.Size()
	column, err := comm.Alloc(g.inside, p.Src.DType(), rows*g.between.Size(), p.Src.Cols())
	if err != nil {
		return err
	}
	onHost := column.Device().Kind == comm.CPU
	defer func() {
		if err != nil && !onHost { // what was enqueued before it failed may still write there
			_ = g.Wait(context.Background(), s)
		}
		err = errors.Join(err, comm.Free(g.inside, column))
	}()
	if err = g.between.AllGather(s, column, p.Src); err != nil {
		return err
	}
	if !onHost { // what failed must not go on
		if err = g.between.Wait(context.Background(), s); err != nil {
			return err
		}
	}
	for n := range g.between.Size() {
		if err = g.inside.AllGather(s, p.Dst.Slice(n*ranks*rows, (n+1)*ranks*rows), column.Slice(n*rows, (n+1)*rows)); err != nil {
			return err
		}
	}
	if onHost {
		return nil
	}
	return g.Wait(context.Background(), s)
}

// Split is Unavailable.
func (g *grid) Split(context.Context, int, int) (comm.Conn, int, int, error) {
	return nil, 0, 0, comm.Errorf("split", g.all.WorldRank(), comm.Unavailable, "both levels together have no groups")
}

// Wait waits for the stream in both levels.
func (g *grid) Wait(ctx context.Context, s comm.Stream) error {
	if err := g.between.Wait(ctx, s); err != nil {
		return err
	}
	return g.inside.Wait(ctx, s)
}

// Abort ends both levels.
func (g *grid) Abort(cause error) {
	g.inside.Abort(cause)
	g.between.Abort(cause)
}

// Close does nothing: the levels are the caller's.
func (g *grid) Close(context.Context) error { return nil }

// Alloc returns memory of the level inside.
func (g *grid) Alloc(t dtype.DType, rows, cols int) (comm.Buffer, error) {
	return comm.Alloc(g.inside, t, rows, cols)
}

// Free gives memory of Alloc back.
func (g *grid) Free(b comm.Buffer) error { return comm.Free(g.inside, b) }

// Copy copies with the driver inside.
func (g *grid) Copy(s comm.Stream, dst, src comm.Buffer) error {
	return comm.Copy(g.inside, s, dst, src)
}

var _ comm.Memory = (*grid)(nil)
