package ipc

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/symm"
)

// Descriptors is a symm.Memory like Memory, with file descriptors of physical memory instead of the older IPC handles. They go
// over a Unix socket, so the processes share a network namespace and need no common IPC namespace. A block is mapped once in a
// process, for all of its devices. Linux only.
type Descriptors struct{}

// mappedHeap is the blocks of this process's ranks and of others', each a range of addresses.
type mappedHeap struct {
	job     symm.Job
	devices []*cuda.Device
	spans   []*cuda.Span
	fds     []int // of this process's blocks
}

// Heap implements symm.Memory.
func (Descriptors) Heap(ctx context.Context, job symm.Job, bytes int) (*symm.Heap, error) {
	if bytes <= 0 {
		return nil, comm.Errorf("cuda ipc", job.First, comm.Invalid, "%d bytes", bytes)
	}
	h := &mappedHeap{job: job}
	out, err := h.open(ctx, bytes)
	closeFDs(h.fds)
	if err != nil {
		return nil, errors.Join(err, h.free())
	}
	out.Close = h.close
	return out, nil
}

func (h *mappedHeap) open(ctx context.Context, bytes int) (*symm.Heap, error) {
	own, size, err := h.allocate(bytes)
	token := rand.Text() + rand.Text()
	var post *office
	if err == nil {
		post, err = openOffice(token, h.fds)
	}
	if post != nil {
		defer post.close()
	}
	mine := make([][]byte, len(h.job.Devices))
	for i := range mine {
		o := offer{Bytes: size, PID: os.Getpid()}
		if err != nil {
			o.Err = err.Error()
		} else {
			o.Own, o.Stamp, o.Device, o.Socket, o.Token = uint64(own[i]), stamp(h.job, i), h.devices[i].Info().UUID, post.name, token
		}
		b, jsonErr := json.Marshal(o)
		if jsonErr != nil {
			panic(jsonErr) // numbers and strings
		}
		mine[i] = b
	}
	offers, gatherErr := gather(ctx, h.job, mine, size)
	if err = errors.Join(err, gatherErr); err != nil {
		return nil, err
	}
	out := &symm.Heap{Bytes: size}
	for _, o := range offers {
		out.Own = append(out.Own, uintptr(o.Own))
	}
	base, mapErr := h.mapOthers(ctx, out.Own, offers)
	for range h.devices {
		out.Base = append(out.Base, base)
	}
	return out, agree(ctx, h.job, offers, mapErr)
}

// allocate takes a block for each rank of this process, stamped, and descriptors of them.
func (h *mappedHeap) allocate(bytes int) (own []uintptr, size int, err error) {
	for _, d := range h.job.Devices {
		dev, err := cuda.Open(d.Index)
		if err != nil {
			return nil, 0, err
		}
		h.devices = append(h.devices, dev)
	}
	size = cuda.RoundUp(bytes, granularity)
	for i, dev := range h.devices {
		g, err := cuda.Granularity(dev)
		if err != nil {
			return nil, 0, err
		}
		if g > granularity {
			return nil, 0, comm.Errorf("cuda ipc", h.job.First+i, comm.Unavailable, "the device maps pieces of %d bytes, this expects at most %d", g, granularity)
		}
		p, err := dev.Create(size, true)
		if err != nil {
			return nil, 0, fmt.Errorf("cuda ipc: rank %d: %w", h.job.First+i, err)
		}
		fd, err := p.FD()
		if err == nil {
			h.fds = append(h.fds, fd)
			var addr uintptr
			addr, err = h.mapBlock(dev, p)
			own = append(own, addr)
		}
		if err = errors.Join(err, p.Close()); err != nil {
			return nil, 0, fmt.Errorf("cuda ipc: rank %d: %w", h.job.First+i, err)
		}
		if err := mark(dev, own[i], stamp(h.job, i)); err != nil {
			return nil, 0, err
		}
	}
	return own, size, nil
}

// mapBlock gives physical memory an address that all devices of this process may use.
func (h *mappedHeap) mapBlock(dev *cuda.Device, p *cuda.Physical) (uintptr, error) {
	span, err := dev.Reserve(p.Bytes())
	if err != nil {
		return 0, err
	}
	h.spans = append(h.spans, span)
	return span.Base(), errors.Join(span.Map(0, p), span.SetAccess(h.devices...))
}

// mapOthers fetches the descriptors of the other processes and maps their blocks.
func (h *mappedHeap) mapOthers(ctx context.Context, own []uintptr, offers []offer) ([]uintptr, error) {
	base := make([]uintptr, len(offers))
	for first := 0; first < len(offers); {
		o, n := offers[first], 1
		for first+n < len(offers) && offers[first+n].Token == o.Token {
			n++
		}
		if h.job.Here(first) {
			copy(base[first:first+n], own[first:first+n])
			first += n
			continue
		}
		fds, err := fetch(ctx, o.Socket, o.Token, n)
		if err != nil {
			return nil, fmt.Errorf("cuda ipc: the descriptors of rank %d (process %d): %w", first, o.PID, err)
		}
		for k, fd := range fds {
			if err == nil {
				base[first+k], err = h.mapForeign(first+k, offers[first+k], fd)
			}
		}
		closeFDs(fds)
		if err != nil {
			return nil, err
		}
		first += n
	}
	return base, nil
}

// mapForeign maps the block of a rank of another process.
func (h *mappedHeap) mapForeign(rank int, o offer, fd int) (uintptr, error) {
	dev := h.devices[0]
	p, err := dev.ImportFD(fd, o.Bytes)
	if err != nil {
		return 0, fmt.Errorf("cuda ipc: the block of rank %d (process %d, %s): %w", rank, o.PID, o.Device, err)
	}
	addr, err := h.mapBlock(dev, p)
	if err = errors.Join(err, p.Close()); err != nil {
		return 0, fmt.Errorf("cuda ipc: the block of rank %d (process %d, %s): %w", rank, o.PID, o.Device, err)
	}
	return addr, look(h.job, dev, addr, rank, o.Stamp)
}

// free unmaps all blocks. The driver keeps a block's memory until the last process has unmapped it.
func (h *mappedHeap) free() error {
	var errs []error
	for _, s := range h.spans {
		errs = append(errs, s.Close())
	}
	for _, d := range h.devices {
		errs = append(errs, d.Close())
	}
	h.spans, h.devices = nil, nil
	return errors.Join(errs...)
}

// close waits for the others, so that a process that ends early is noticed here, and unmaps.
func (h *mappedHeap) close(ctx context.Context) error {
	var err error
	if ctx.Err() == nil {
		_, err = h.job.Gather(ctx, "ipc/done", make([][]byte, len(h.job.Devices)))
	}
	return errors.Join(err, h.free())
}
