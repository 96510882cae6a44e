package cuda

import (
	"fmt"
	"unsafe"
)

// Alloc returns the address of bytes of device memory, aligned to 256. The caller owns it and calls Free. Its content is
// undefined. Allocating may wait for all kernels of the device: do not do it while ranks wait for each other.
func (d *Device) Alloc(bytes int) (uintptr, error) {
	if bytes <= 0 {
		return 0, &Error{Call: fmt.Sprintf("alloc %d bytes", bytes), Device: d.info.Ordinal, Code: InvalidValue}
	}
	var addr uintptr
	if c := cuMemAlloc(d.ctx, &addr, uintptr(bytes)); c != success {
		text := fmt.Sprintf("alloc %d bytes", bytes)
		if n := d.PutOff(); n > 0 && c == OutOfMemory {
			text += fmt.Sprintf(" (while ranks may wait for each other, %d frees are put off; see Reclaim)", n)
		}
		return 0, d.check(c, text)
	}
	d.alive.Add(1)
	return addr, nil
}

// Free gives memory of Alloc back, later while the device is held: see [Device.Hold]. Freeing 0 does nothing.
func (d *Device) Free(addr uintptr) error {
	if addr == 0 {
		return nil
	}
	return d.whenReleased(func() error {
		if err := d.check(cuMemFree(d.ctx, addr), "free"); err != nil {
			return err
		}
		d.alive.Add(-1)
		return nil
	})
}

// Alive returns how many allocations of Alloc, AllocHost and Create of this device were not given back yet.
func (d *Device) Alive() int { return int(d.alive.Load()) }

// Memory returns the free and total bytes of the device, as the driver sees them: other processes count.
func (d *Device) Memory() (free, total int, err error) {
	var f, t uintptr
	err = d.check(cuMemGetInfo(d.ctx, &f, &t), "memory info")
	return int(f), int(t), err
}

// Pinned is host memory that stays where it is, so that asynchronous copies may use it, and that kernels of every device
// can address.
type Pinned struct {
	dev   *Device
	addr  uintptr
	bytes []byte
}

// AllocHost returns bytes of pinned host memory. The caller calls Close.
func (d *Device) AllocHost(bytes int) (*Pinned, error) {
	if bytes <= 0 {
		return nil, &Error{Call: fmt.Sprintf("alloc %d pinned bytes", bytes), Device: d.info.Ordinal, Code: InvalidValue}
	}
	p := &Pinned{dev: d}
	const portable, mapped = 1, 2
	if err := d.checkf(cuMemHostAlloc(d.ctx, &p.addr, uintptr(bytes), portable|mapped), "alloc %d pinned bytes", bytes); err != nil {
		return nil, err
	}
	p.bytes = unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p.addr))), bytes)
	d.alive.Add(1)
	return p, nil
}

// Bytes returns the memory. It is not the garbage collector's, and ends with Close.
func (p *Pinned) Bytes() []byte { return p.bytes }

// Addr returns the address, the same on the host and on every device.
func (p *Pinned) Addr() uintptr { return p.addr }

// Close frees the memory, later while the device is held: see [Device.Hold]. No copy or kernel may still use it.
func (p *Pinned) Close() error {
	if p.addr == 0 {
		return nil
	}
	d, addr := p.dev, p.addr
	p.addr, p.bytes = 0, nil
	return d.whenReleased(func() error {
		if err := d.check(cuMemFreeHost(d.ctx, addr), "free pinned memory"); err != nil {
			return err
		}
		d.alive.Add(-1)
		return nil
	})
}

// Register pins host memory that is not Go's, such as a mapped file, so that Copy may use its address; Unregister undoes it.
func (d *Device) Register(addr uintptr, bytes int) error {
	const portable = 1
	return d.checkf(cuMemHostRegister(d.ctx, addr, uintptr(bytes), portable), "register %d bytes of host memory", bytes)
}

// Unregister undoes Register.
func (d *Device) Unregister(addr uintptr) error {
	return d.check(cuMemHostUnregister(d.ctx, addr), "unregister host memory")
}

// Owner returns the ordinal of the device whose memory is at addr, and false for pinned host memory. An address that CUDA
// does not know is comm.Invalid: the way to find a caller's pointer to pageable memory or to nothing before a kernel does.
func (d *Device) Owner(addr uintptr) (ordinal int, onDevice bool, err error) {
	const memoryType, deviceOrdinal, device = 2, 9, 2
	var kind, v int32
	err = d.checkf(cuPointerGetAttribute(d.ctx, unsafe.Pointer(&kind), memoryType, addr), "owner of %#x", addr)
	if err == nil {
		err = d.checkf(cuPointerGetAttribute(d.ctx, unsafe.Pointer(&v), deviceOrdinal, addr), "owner of %#x", addr)
	}
	return int(v), kind == device, err
}

// Bytes views a slice of plain numbers as bytes.
func Bytes[T ~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(*new(T))))
}
