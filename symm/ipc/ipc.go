package ipc

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/symm"
)

// Memory is a symm.Memory of CUDA IPC.
type Memory struct{}

// granularity is what blocks are rounded up to: the driver puts smaller allocations together into one, and a handle names
// the whole.
const granularity = 2 << 20

// offer is what a rank tells the others of its block.
type offer struct {
	Own    uint64
	Bytes  int
	Handle []byte
	Stamp  uint64
	PID    int
	Device string
	Socket string `json:",omitempty"` // of the process: who says Token gets its descriptors
	Token  string `json:",omitempty"`
	Err    string `json:",omitempty"`
}

// heap is the blocks of this process's ranks and what it mapped of others'.
type heap struct {
	job     symm.Job
	devices []*cuda.Device
	own     []uintptr
	mapped  map[mapping]uintptr
}

type mapping struct {
	device int
	rank   int
}

// Heap implements symm.Memory.
func (Memory) Heap(ctx context.Context, job symm.Job, bytes int) (*symm.Heap, error) {
	if bytes <= 0 {
		return nil, comm.Errorf("cuda ipc", job.First, comm.Invalid, "%d bytes", bytes)
	}
	h := &heap{job: job, mapped: map[mapping]uintptr{}}
	bytes = cuda.RoundUp(bytes, granularity)
	mine := make([][]byte, len(job.Devices))
	allocErr := h.allocate(bytes)
	for i := range mine {
		mine[i] = h.offer(i, bytes, allocErr)
	}
	out, err := h.exchange(ctx, mine, bytes)
	if err = errors.Join(allocErr, err); err != nil {
		return nil, errors.Join(err, h.unmap(), h.free())
	}
	out.Close = h.close
	return out, nil
}

// allocate takes a block for each rank of this process, stamped.
func (h *heap) allocate(bytes int) error {
	for i, d := range h.job.Devices {
		dev, err := cuda.Open(d.Index)
		if err != nil {
			return err
		}
		h.devices = append(h.devices, dev)
		addr, err := dev.Alloc(bytes)
		if err != nil {
			return fmt.Errorf("cuda ipc: rank %d: %w", h.job.First+i, err)
		}
		h.own = append(h.own, addr)
		if err := mark(dev, addr, stamp(h.job, i)); err != nil {
			return err
		}
	}
	return nil
}

// stamp is what the block of the i-th rank begins with until all have mapped it.
func stamp(job symm.Job, i int) uint64 {
	return uint64(os.Getpid())<<32 | uint64(job.First+i)<<8 | 0xa5
}

// mark writes a stamp.
func mark(dev *cuda.Device, addr uintptr, v uint64) error {
	return withStream(dev, func(s *cuda.Stream) error { return s.Upload(addr, binary.LittleEndian.AppendUint64(nil, v)) })
}

// look checks that what was mapped is the block of a rank.
func look(job symm.Job, dev *cuda.Device, addr uintptr, rank int, want uint64) error {
	got := make([]byte, 8)
	if err := withStream(dev, func(s *cuda.Stream) error { return s.Download(got, addr) }); err != nil {
		return err
	}
	if v := binary.LittleEndian.Uint64(got); v != want {
		return comm.Errorf("cuda ipc", job.First, comm.Internal, "the handle of rank %d maps other memory: stamp %#x, want %#x", rank, v, want)
	}
	return nil
}

func withStream(d *cuda.Device, fn func(s *cuda.Stream) error) error {
	s, err := d.NewStream(0)
	if err != nil {
		return err
	}
	err = fn(s)
	if err == nil {
		err = s.Wait(context.Background())
	}
	return errors.Join(err, s.Close())
}

// offer describes the block of the i-th rank, or says that this process cannot go on.
func (h *heap) offer(i, bytes int, err error) []byte {
	o := offer{Bytes: bytes, PID: os.Getpid()}
	if err == nil {
		var handle cuda.IPCHandle
		handle, err = h.devices[i].Export(h.own[i])
		o.Own, o.Handle, o.Stamp, o.Device = uint64(h.own[i]), handle[:], stamp(h.job, i), h.devices[i].Info().UUID
	}
	if err != nil {
		o.Err = err.Error()
	}
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // numbers and strings
	}
	return b
}

// exchange exchanges the offers and maps what the others offer.
func (h *heap) exchange(ctx context.Context, mine [][]byte, bytes int) (*symm.Heap, error) {
	offers, err := gather(ctx, h.job, mine, bytes)
	if err != nil {
		return nil, err
	}
	out := &symm.Heap{Bytes: bytes}
	for _, o := range offers {
		out.Own = append(out.Own, uintptr(o.Own))
	}
	return out, agree(ctx, h.job, offers, h.mapAll(out, offers))
}

// gather exchanges the offers, which must fit each other.
func gather(ctx context.Context, job symm.Job, mine [][]byte, bytes int) ([]offer, error) {
	all, err := job.Gather(ctx, "ipc", mine)
	if err != nil {
		return nil, err
	}
	offers := make([]offer, len(all))
	for r, b := range all {
		if err := json.Unmarshal(b, &offers[r]); err != nil {
			return nil, comm.Errorf("cuda ipc", job.First, comm.Internal, "rank %d offers %q: %w", r, b, err)
		}
		o := offers[r]
		if o.Err != "" {
			return nil, comm.Errorf("cuda ipc", job.First, comm.Remote, "rank %d (process %d): %s", r, o.PID, o.Err)
		}
		if o.Bytes != bytes {
			return nil, comm.Errorf("cuda ipc", job.First, comm.Invalid, "rank %d wants %d bytes, rank %d wants %d", job.First, bytes, r, o.Bytes)
		}
	}
	return offers, nil
}

// agree ends the mapping on all processes: nobody writes into a block before all have read its stamp, and all fail together.
func agree(ctx context.Context, job symm.Job, offers []offer, mapErr error) error {
	verdicts := make([][]byte, len(job.Devices))
	for i := range verdicts {
		if mapErr != nil {
			verdicts[i] = []byte(mapErr.Error())
		}
	}
	all, err := job.Gather(ctx, "ipc/mapped", verdicts)
	if err = errors.Join(mapErr, err); err != nil {
		return err
	}
	for r, text := range all {
		if len(text) > 0 {
			return comm.Errorf("cuda ipc", job.First, comm.Remote, "rank %d (process %d): %s", r, offers[r].PID, text)
		}
	}
	return nil
}

// mapAll fills out.Base.
func (h *heap) mapAll(out *symm.Heap, offers []offer) error {
	for _, dev := range h.devices {
		base := make([]uintptr, len(offers))
		for r, o := range offers {
			if h.job.Here(r) {
				base[r] = out.Own[r]
				if err := dev.EnablePeer(h.devices[r-h.job.First]); err != nil {
					return err
				}
				continue
			}
			addr, err := h.mapOne(dev, r, o)
			if err != nil {
				return err
			}
			base[r] = addr
		}
		out.Base = append(out.Base, base)
	}
	return nil
}

// mapOne maps the block of a rank for a device, once.
func (h *heap) mapOne(dev *cuda.Device, rank int, o offer) (uintptr, error) {
	key := mapping{dev.Ordinal(), rank}
	if addr := h.mapped[key]; addr != 0 {
		return addr, nil
	}
	if len(o.Handle) != len(cuda.IPCHandle{}) {
		return 0, comm.Errorf("cuda ipc", h.job.First, comm.Internal, "rank %d offers a handle of %d bytes", rank, len(o.Handle))
	}
	addr, err := dev.Import(cuda.IPCHandle(o.Handle))
	if err != nil {
		return 0, fmt.Errorf("cuda ipc: the block of rank %d (process %d, %s): %w; the processes need one IPC namespace and GPUs that see each other",
			rank, o.PID, o.Device, err)
	}
	h.mapped[key] = addr
	if err := look(h.job, dev, addr, rank, o.Stamp); err != nil {
		return 0, err
	}
	return addr, nil
}

func (h *heap) unmap() error {
	var errs []error
	for _, dev := range h.devices {
		for key, addr := range h.mapped {
			if key.device == dev.Ordinal() {
				errs = append(errs, dev.Unimport(addr))
				delete(h.mapped, key)
			}
		}
	}
	return errors.Join(errs...)
}

func (h *heap) free() error {
	var errs []error
	for i, dev := range h.devices {
		if i < len(h.own) {
			errs = append(errs, dev.Free(h.own[i]))
		}
		errs = append(errs, dev.Close())
	}
	h.devices, h.own = nil, nil
	return errors.Join(errs...)
}

// close unmaps, waits until all have, and frees.
func (h *heap) close(ctx context.Context) error {
	err := h.unmap()
	if ctx.Err() == nil {
		_, meetErr := h.job.Gather(ctx, "ipc/unmapped", make([][]byte, len(h.job.Devices)))
		err = errors.Join(err, meetErr)
	}
	return errors.Join(err, h.free())
}
