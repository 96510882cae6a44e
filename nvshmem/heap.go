package nvshmem

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/symm"
)

// Heap implements symm.Memory: a block of NVSHMEM's heap for each rank, which kernels of all ranks address through
// nvshmem_ptr. A process has one rank, the one of its PE.
func (p *PE) Heap(ctx context.Context, job symm.Job, bytes int) (*symm.Heap, error) {
	if len(job.Devices) != 1 || job.First != p.cfg.Rank || job.Size != p.cfg.Size || job.Devices[0].Index != p.cfg.Device {
		return nil, errorf(comm.Invalid, "the world has ranks %d to %d of %d on %v here, NVSHMEM has PE %d of %d on cuda:%d",
			job.First, job.First+len(job.Devices)-1, job.Size, job.Devices, p.cfg.Rank, p.cfg.Size, p.cfg.Device)
	}
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	size := binary.LittleEndian.AppendUint64(nil, uint64(bytes))
	all, err := job.Gather(ctx, "nvshmem", [][]byte{size}) // all are here, before anyone waits in the library
	if err != nil {
		return nil, err
	}
	for rank, b := range all {
		if n := binary.LittleEndian.Uint64(b); n != uint64(bytes) {
			return nil, errorf(comm.Invalid, "rank %d wants %d bytes, rank %d wants %d", p.cfg.Rank, bytes, rank, n)
		}
	}
	addr, err := p.Malloc(ctx, bytes)
	if err != nil {
		return nil, err // on all PEs: their heaps are alike
	}
	h := &symm.Heap{Bytes: bytes, Base: [][]uintptr{make([]uintptr, p.cfg.Size)}}
	for rank := range h.Base[0] {
		at, ptrErr := p.Ptr(addr, rank)
		if ptrErr == nil && at == 0 {
			ptrErr = errorf(comm.Unavailable, "loads and stores of rank %d do not reach the memory of rank %d: another node, or a GPU without peer access", p.cfg.Rank, rank)
		}
		err = errors.Join(err, ptrErr)
		h.Base[0][rank] = at
	}
	// Zero tells the others that this rank cannot go on.
	own := addr
	if err != nil {
		own = 0
	}
	all, exchangeErr := job.Gather(ctx, "nvshmem/own", [][]byte{binary.LittleEndian.AppendUint64(nil, uint64(own))})
	if exchangeErr != nil { // who is still there is not known, and the library would wait for all: the block stays
		return nil, errors.Join(err, exchangeErr)
	}
	for rank, b := range all {
		h.Own = append(h.Own, uintptr(binary.LittleEndian.Uint64(b)))
		if h.Own[rank] == 0 && err == nil {
			err = errorf(comm.Remote, "rank %d does not reach all memory", rank)
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.Free(ctx, addr)) // all ranks have seen the zero
	}
	h.Close = func(ctx context.Context) error {
		if ctx.Err() != nil {
			return nil // the library would wait for the others
		}
		if _, err := job.Gather(ctx, "nvshmem/free", [][]byte{nil}); err != nil {
			return err
		}
		return p.Free(ctx, addr)
	}
	return h, nil
}

var _ symm.Memory = (*PE)(nil)
