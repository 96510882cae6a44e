package cuda

import (
	"errors"
	"fmt"
)

// Physical is device memory that has no address until it is mapped.
type Physical struct {
	dev    *Device
	handle uintptr
	bytes  int
}

// Granularity returns the bytes to which Reserve, Create and Map round: the largest of the devices' recommended ones.
func Granularity(devices ...*Device) (int, error) {
	g := 1
	for _, d := range devices {
		var v uintptr
		if err := d.check(granularity(&v, d.dev, 0), "granularity"); err != nil {
			return 0, err
		}
		g = max(g, int(v)) // powers of two
	}
	return g, nil
}

// RoundUp rounds bytes up to a multiple of granularity, a power of two.
func RoundUp(bytes, granularity int) int { return (bytes + granularity - 1) &^ (granularity - 1) }

// Create takes physical memory; bytes is a multiple of Granularity. With share, its descriptor may go to other processes.
func (d *Device) Create(bytes int, share bool) (*Physical, error) {
	p := &Physical{dev: d, bytes: bytes}
	var handles int32
	if share {
		handles = 1
	}
	if err := d.checkf(memCreate(d.ctx, &p.handle, uintptr(bytes), d.dev, handles), "create %d bytes", bytes); err != nil {
		return nil, err
	}
	d.alive.Add(1)
	return p, nil
}

// Bytes returns its size.
func (p *Physical) Bytes() int { return p.bytes }

// Close gives the memory back; what is mapped of it lives until it is unmapped.
func (p *Physical) Close() error {
	if p.handle == 0 {
		return nil
	}
	if err := p.dev.check(cuMemRelease(p.dev.ctx, p.handle), "release physical memory"); err != nil {
		return err
	}
	p.handle = 0
	p.dev.alive.Add(-1)
	return nil
}

// Span is a range of addresses, the same on every device of the process.
type Span struct {
	dev    *Device // whose context is current for its calls
	base   uintptr
	bytes  int
	mapped [][2]int // offset, bytes
}

// Reserve takes a range of addresses with nothing behind it; bytes is a multiple of Granularity.
func (d *Device) Reserve(bytes int) (*Span, error) {
	s := &Span{dev: d, bytes: bytes}
	err := d.checkf(cuMemAddressReserve(d.ctx, &s.base, uintptr(bytes), 0, 0, 0), "reserve %d bytes", bytes)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Base returns the first address.
func (s *Span) Base() uintptr { return s.base }

// Bytes returns the size of the range.
func (s *Span) Bytes() int { return s.bytes }

// Map puts physical memory at an offset. It may be closed afterwards.
func (s *Span) Map(offset int, p *Physical) error {
	if offset < 0 || offset+p.bytes > s.bytes {
		return &Error{Call: fmt.Sprintf("map %d bytes at %d of %d", p.bytes, offset, s.bytes), Device: s.dev.info.Ordinal, Code: InvalidValue}
	}
	err := s.dev.checkf(cuMemMap(s.dev.ctx, s.base+uintptr(offset), uintptr(p.bytes), 0, p.handle, 0), "map %d bytes", p.bytes)
	if err == nil {
		s.mapped = append(s.mapped, [2]int{offset, p.bytes})
	}
	return err
}

// SetAccess lets kernels of the devices, and copies by them, read and write all that is mapped. At most 64 devices.
func (s *Span) SetAccess(devices ...*Device) error {
	var ids []int32
	seen := map[int32]bool{}
	for _, d := range devices {
		if !seen[d.dev] {
			ids = append(ids, d.dev)
			seen[d.dev] = true
		}
	}
	for _, m := range s.mapped {
		if err := s.dev.checkf(setAccess(s.dev.ctx, s.base+uintptr(m[0]), uintptr(m[1]), ids), "set access of devices %v", ids); err != nil {
			return err
		}
	}
	return nil
}

// Close unmaps everything and gives the addresses back. No kernel may still use them.
func (s *Span) Close() error {
	if s.base == 0 {
		return nil
	}
	var errs []error
	for _, m := range s.mapped {
		errs = append(errs, s.dev.check(cuMemUnmap(s.dev.ctx, s.base+uintptr(m[0]), uintptr(m[1])), "unmap"))
	}
	s.mapped = nil
	errs = append(errs, s.dev.check(cuMemAddressFree(s.dev.ctx, s.base, uintptr(s.bytes)), "free addresses"))
	s.base = 0
	return errors.Join(errs...)
}

// Symmetric is memory of one size for each of several ranks, at base + rank x stride, which all of their devices address.
type Symmetric struct {
	*Span
	Stride int // bytes from one rank's memory to the next one's; at least the bytes asked for
}

// At returns the address of a rank's memory.
func (s *Symmetric) At(rank int) uintptr { return s.base + uintptr(rank)*uintptr(s.Stride) }

// NewSymmetric allocates bytes for every rank on its device, and gives all of the devices access to all of it. Devices may
// repeat: several ranks on one GPU. A pair of devices without peer access is comm.Unavailable. The content is undefined.
func NewSymmetric(ranks []*Device, bytes int) (s *Symmetric, err error) {
	if len(ranks) == 0 || bytes <= 0 {
		return nil, &Error{Call: fmt.Sprintf("symmetric memory: %d ranks, %d bytes", len(ranks), bytes), Device: -1, Code: InvalidValue}
	}
	for _, from := range ranks {
		for _, to := range ranks {
			if can, err := from.CanAccess(to); err != nil {
				return nil, err
			} else if !can {
				return nil, &Error{Call: fmt.Sprintf("symmetric memory: no peer access to device %d", to.info.Ordinal), Device: from.info.Ordinal, Code: NotSupported}
			}
		}
	}
	g, err := Granularity(ranks...)
	if err != nil {
		return nil, err
	}
	stride := RoundUp(bytes, g)
	span, err := ranks[0].Reserve(stride * len(ranks))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, span.Close())
		}
	}()
	for rank, d := range ranks {
		p, err := d.Create(stride, false)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(span.Map(rank*stride, p), p.Close()); err != nil {
			return nil, err
		}
	}
	if err := span.SetAccess(ranks...); err != nil {
		return nil, err
	}
	return &Symmetric{span, stride}, nil
}
