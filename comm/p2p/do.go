package p2p

import (
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/gpurank"
	"github.com/weftgo/weft/internal/kernels"
)

// blockBytes is what one block moves of a rank's data before another one is worth its launch.
const blockBytes = 16 << 10

// Do enqueues one operation: one launch, or one for every eight tensors. It waits for nobody. Errors of earlier
// operations may appear here.
func (c *conn) Do(s comm.Stream, op *comm.Op) error {
	op.Stats = comm.OpStats{}
	if err := c.ready(); err != nil {
		return c.relabel(op, err)
	}
	st, err := c.r.streams.Of(s)
	if err != nil {
		return c.invalid(op, err)
	}
	if err := c.r.streams.Order(st); err != nil {
		return c.failed(op, err)
	}
	if c.g.foreign() {
		if err := c.reachable(op.Parts); err != nil {
			return c.invalid(op, err)
		}
	}
	call := c.log.add(op)
	if op.Kind != comm.Send && op.Kind != comm.Recv {
		c.calls.Add(1)
	}
	for first := 0; first == 0 || first < len(op.Parts); first += kernels.MaxParts {
		parts := op.Parts[first:min(len(op.Parts), first+kernels.MaxParts)]
		if err := c.launch(st, op, call, parts, uint64(first)); err != nil {
			return c.failed(op, err)
		}
		op.Stats.Launches++
	}
	op.Stats.SentBytes = c.sentBytes(op)
	return nil
}

// ready reports why no operation can begin: the Conn is closed, the world is dead, an earlier one failed.
func (c *conn) ready() error {
	if c.closed.Load() {
		return comm.Errorf("", c.r.index, comm.Invalid, "the comm is closed")
	}
	if err := c.pending(); err != nil {
		return err
	}
	if w := c.g.w; !w.alive() {
		return comm.AbortedError("", c.r.index, fmt.Errorf("the world is dead: %w", w.cause))
	}
	return nil
}

// relabel names the operation in an error that has none.
func (c *conn) relabel(op *comm.Op, err error) error {
	if e, ok := err.(*comm.Error); ok && e.Op == "" {
		e.Op = op.Label()
	}
	return err
}

func (c *conn) invalid(op *comm.Op, err error) error {
	return &comm.Error{Op: op.Label(), Rank: c.r.index, Peer: comm.NoPeer, Code: comm.Invalid, Err: err}
}

func (c *conn) failed(op *comm.Op, err error) error {
	return &comm.Error{Op: op.Label(), Rank: c.r.index, Peer: comm.NoPeer, Code: gpurank.CodeOf(err), Err: err}
}

// launch enqueues the kernel for up to eight parts.
func (c *conn) launch(st *cuda.Stream, op *comm.Op, call uint32, parts []comm.Part, first uint64) error {
	a := c.args
	e := &a.Entry
	a.Kind, a.Reduce, a.Peer = uint32(op.Kind), uint32(op.Reduce), uint32(op.Peer)
	a.Own, a.All, a.NumOwn, a.Ragged, a.Shared = 0, 0, 0, 0, c.g.shared
	e.Signature = op.Signature() ^ first<<56
	e.Call, e.NumParts = call, uint32(len(parts))
	e.HostCounts = 0
	a.SetEntryWords()
	var work int64
	for i := range parts {
		p := &e.Parts[i]
		dst, src := parts[i].Dst, parts[i].Src
		one := src
		if op.Kind == comm.Recv {
			one, src = dst, comm.Buffer{}
		}
		size := int64(one.DType().Size())
		*p = kernels.Part{
			Src: uint64(src.Addr()), SrcStride: int64(src.Stride()) * size, SrcRows: uint32(src.Rows()),
			Cols: uint32(one.Cols()), DTyp: uint32(one.DType()),
		}
		if op.Kind != comm.Send {
			p.Dst, p.DstStride, p.DstRows = uint64(dst.Addr()), int64(dst.Stride())*size, uint32(dst.Rows())
		}
		work += max(dst.SizeBytes(), src.SizeBytes())
	}
	if op.Kind == comm.AllGatherV || op.Kind == comm.ReduceScatterV || op.Kind == comm.AllToAllV {
		c.counts(op)
	}
	how := c.g.w.table.choose(op.Kind, work)
	most := c.r.gpu.blocks
	if how.Blocks > 0 {
		most = min(most, how.Blocks)
	}
	if c.limit > 0 {
		most = min(most, c.limit)
	}
	if (how.Push || how.Blocks == 0) && kernels.IsSmall(a) {
		return c.r.gpu.kernels.Small(st, a, most, 1)
	}
	if op.Kind == comm.AllReduce || op.Kind == comm.Reduce {
		work /= int64(len(c.g.members)) // a rank's share
		work *= 2
	}
	blocks := most
	if how.Blocks == 0 {
		blocks = int(min(int64(most), (work+blockBytes-1)/blockBytes))
	}
	return c.r.gpu.kernels.Collective(st, a, len(c.g.members), max(1, blocks))
}

// counts fills what a ragged operation's ranks tell each other.
func (c *conn) counts(op *comm.Op) {
	a := c.args
	a.Ragged = 1
	e := &a.Entry
	if host, ok := op.Send.Host(); ok {
		e.HostCounts |= 1
		for i, n := range host {
			e.Send[i] = int32(n)
		}
	} else {
		own, all, limit := op.Send.Device()
		a.Own, a.NumOwn, e.SendLimit = uint64(own.Addr()), 1, uint32(limit)
		if op.Kind == comm.AllToAllV {
			a.NumOwn = uint32(len(c.g.members))
		} else {
			a.All = uint64(all.Addr())
		}
	}
	if op.Kind != comm.AllToAllV {
		return
	}
	if host, ok := op.Recv.Host(); ok {
		e.HostCounts |= 2
		for i, n := range host {
			e.Recv[i] = int32(n)
		}
		return
	}
	_, all, limit := op.Recv.Device()
	a.All, e.RecvLimit = uint64(all.Addr()), uint32(limit)
}

// sentBytes is what this rank's share of an operation moves between two different ranks, as far as the host knows the
// counts: those on the device count as nothing. Over all ranks an all-reduce of S bytes adds up to 2(P-1)S, the gathering
// and scattering forms, broadcast and reduce to (P-1)S.
func (c *conn) sentBytes(op *comm.Op) (sum int64) {
	others, size, rank := int64(len(c.g.members)-1), len(c.g.members), c.rank
	host, _ := op.Send.Host()
	total, own := 0, 0
	for i, n := range host {
		total += n
		if i == rank {
			own = n
		}
	}
	for i := range op.Parts {
		src, dst := op.Parts[i].Src, op.Parts[i].Dst
		row := int64(src.Cols()) * int64(src.DType().Size())
		switch op.Kind {
		case comm.AllReduce:
			n := src.Rows() * src.Cols()
			sum += 2 * others * int64(n*(rank+1)/size-n*rank/size) * int64(src.DType().Size())
		case comm.Reduce:
			if rank == op.Peer {
				sum += others * src.SizeBytes()
			}
		case comm.Broadcast:
			if rank != op.Peer {
				sum += src.SizeBytes()
			}
		case comm.AllGather:
			sum += others * src.SizeBytes()
		case comm.ReduceScatter:
			sum += others * dst.SizeBytes()
		case comm.AllGatherV:
			sum += int64(total-own) * row
		case comm.ReduceScatterV:
			sum += others * int64(own) * row
		case comm.AllToAllV:
			recv, _ := op.Recv.Host()
			for i, n := range recv {
				if i != rank {
					sum += int64(n) * row
				}
			}
		case comm.Send:
			sum += src.SizeBytes()
		}
	}
	return sum
}
