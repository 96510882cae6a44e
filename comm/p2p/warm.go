package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// warm runs the kernels once on each GPU of this process before anybody waits. They are loaded already, but at the first launch of
// one the driver may still have to make room, such as for deeper stacks, and for that it waits until every running kernel has
// ended: those too that wait for the rank which launches. (On an H200 the kernel for rare reductions did, and left the driver with
// 326 MiB more; TestFirstUseOfKernels.)
func (w *world) warm(ctx context.Context) error {
	seen := map[*gpu]bool{}
	for _, r := range w.local {
		if seen[r.gpu] {
			continue
		}
		seen[r.gpu] = true
		if err := r.warm(ctx); err != nil {
			return fmt.Errorf("first run of the kernels on cuda:%d: %w", r.gpu.dev.Ordinal(), err)
		}
	}
	return nil
}

// warmBytes is what the calls of warm have at most: several blocks' share.
const warmBytes = 128 << 10

// warm makes calls in a group of its own, which ends with it.
func (r *rank) warm(ctx context.Context) (err error) {
	g := newGroup(r.w, []*rank{r})
	if err := g.connect(ctx, "warm", g.conns); err != nil {
		return err
	}
	c := g.conns[0]
	addr, err := r.zeroed(2 * warmBytes)
	defer func() {
		r.mu.Lock()
		r.conns = slices.DeleteFunc(r.conns, func(x *conn) bool { return x == c })
		r.mu.Unlock()
		for _, a := range []uintptr{addr, c.ctl, c.small} {
			if a != 0 {
				err = errors.Join(err, r.arena.free(a))
			}
		}
	}()
	if err != nil {
		return err
	}
	for _, x := range []struct {
		kind   comm.OpKind
		reduce comm.ReduceOp
		typ    dtype.DType
		cols   int
	}{
		{comm.Barrier, 0, 0, 0},
		{comm.AllGather, 0, dtype.F32, 16},
		{comm.AllReduce, comm.Sum, dtype.F32, 16},     // the kernel for small ones
		{comm.AllReduce, comm.Sum, dtype.F32, 15},     // the kernel for the usual types
		{comm.AllReduce, comm.Max, dtype.I32, 16},     // the kernel for all types
		{comm.AllGather, 0, dtype.F32, warmBytes / 4}, // the same on several blocks
		{comm.AllReduce, comm.Sum, dtype.F32, warmBytes/4 - 1},
		{comm.AllReduce, comm.Max, dtype.I32, warmBytes / 4},
	} {
		op := comm.Op{Kind: x.kind, Reduce: x.reduce}
		if x.cols > 0 {
			b := comm.At(c.Device(), addr, x.typ, 1, x.cols, x.cols)
			dst := comm.At(c.Device(), addr+warmBytes, x.typ, 1, x.cols, x.cols)
			op.Parts = []comm.Part{{Dst: dst, Src: b}}
		}
		if err := c.Do(comm.Stream{}, &op); err != nil {
			return err
		}
	}
	b := comm.At(c.Device(), addr, dtype.U8, 1, align, align)
	err = c.Copy(comm.Stream{}, comm.At(c.Device(), addr+warmBytes, dtype.U8, 1, align, align), b)
	return errors.Join(err, c.leave(), c.wait(ctx, r.streams.Own))
}
