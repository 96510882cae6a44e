package comm

import (
	"fmt"
	"unsafe"

	"github.com/weftgo/weft/dtype"
)

// Kind is a kind of device.
type Kind uint8

// The kinds of device.
const (
	CPU Kind = iota
	CUDA
)

// Device is where a rank's buffers live. Ranks may share one. The zero value is cpu:0.
type Device struct {
	Kind  Kind
	Index int
}

// String returns "cpu:0" or "cuda:3".
func (d Device) String() string {
	if d.Kind == CUDA {
		return fmt.Sprintf("cuda:%d", d.Index)
	}
	return fmt.Sprintf("cpu:%d", d.Index)
}

// Buffer is a typed, row-major view [rows, cols] of memory, with a row stride in elements. It is a small value; copying it
// does not copy data. On the CPU it keeps the Go memory behind it alive; on a GPU it holds an address that its owner
// must keep allocated. The zero Buffer is "no buffer".
type Buffer struct {
	ptr    unsafe.Pointer // Go memory (CPU)
	addr   uintptr        // device address (GPU)
	rows   int
	cols   int
	stride int
	dtype  dtype.DType
	device Device
	fault  string // why the view is unusable; reported by the call that gets it
}

// Of views a Go slice as [len(x)/cols, cols]. A length that is not a whole number of rows is reported by the call that
// uses the buffer.
func Of[T dtype.Element](x []T, cols int) Buffer {
	b := Buffer{ptr: unsafe.Pointer(unsafe.SliceData(x)), cols: cols, stride: cols, dtype: dtype.Of[T]()}
	switch {
	case cols <= 0:
		b.fault = fmt.Sprintf("a buffer of %d columns", cols)
	case len(x)%cols != 0:
		b.fault = fmt.Sprintf("a slice of %d elements is not a whole number of rows of %d", len(x), cols)
	default:
		b.rows = len(x) / cols
	}
	return b
}

// OfBytes views host memory as [rows, cols] elements of a type that is known at run time. Memory that is too small or not
// aligned to an element is reported by the call that uses the buffer.
func OfBytes(x []byte, t dtype.DType, rows, cols int) Buffer {
	b := Buffer{ptr: unsafe.Pointer(unsafe.SliceData(x)), rows: rows, cols: cols, stride: cols, dtype: t}
	switch {
	case !t.Valid() || rows < 0 || cols <= 0:
		b.fault = fmt.Sprintf("a buffer of %v[%d, %d]", t, rows, cols)
	case rows > len(x)/t.Size()/cols:
		b.fault = fmt.Sprintf("%d bytes are too few for %v[%d, %d]", len(x), t, rows, cols)
	case uintptr(b.ptr)%uintptr(t.Size()) != 0:
		b.fault = fmt.Sprintf("memory at %p is not aligned to an element of %v", b.ptr, t)
	}
	return b
}

// At views rows x cols elements of the caller's device memory at addr, rows stride elements apart. The memory stays the
// caller's and must outlive every operation that uses it.
func At(dev Device, addr uintptr, t dtype.DType, rows, cols, stride int) Buffer {
	b := Buffer{addr: addr, rows: rows, cols: cols, stride: stride, dtype: t, device: dev}
	switch {
	case dev.Kind == CPU:
		b.fault = "comm.At is for device memory; view a Go slice with comm.Of"
	case rows < 0 || cols <= 0 || stride < cols:
		b.fault = fmt.Sprintf("a buffer of shape [%d, %d] with row stride %d", rows, cols, stride)
	case addr == 0 && rows > 0:
		b.fault = fmt.Sprintf("a null device address for shape [%d, %d]", rows, cols)
	case t.Valid() && rows > 0 && addr%uintptr(t.Size()) != 0:
		b.fault = fmt.Sprintf("device address %#x is not aligned to an element of %v", addr, t)
	}
	return b
}

// View returns the elements of a contiguous CPU buffer as a slice that shares its memory. It is an error if the buffer
// is on a GPU, holds another type, or has a row stride beyond its columns.
func View[T dtype.Element](b Buffer) ([]T, error) {
	if b.fault != "" {
		return nil, fmt.Errorf("comm: view of %s", b.fault)
	}
	if want := dtype.Of[T](); b.dtype != want {
		return nil, fmt.Errorf("comm: view of %v as %v", b, want)
	}
	if b.device.Kind != CPU {
		return nil, fmt.Errorf("comm: view of %v: its memory is not the host's; use comm.Copy", b)
	}
	if !b.Contiguous() {
		return nil, fmt.Errorf("comm: view of %v: rows are not contiguous; use comm.Row", b)
	}
	return unsafe.Slice((*T)(b.ptr), b.rows*b.cols), nil
}

// Row returns row i of a CPU buffer of type T, sharing its memory. It panics if b is on a GPU, holds another type or
// has no such row: it is for loops over a buffer that was validated before.
func Row[T dtype.Element](b Buffer, i int) []T {
	if b.dtype != dtype.Of[T]() || b.device.Kind != CPU || i < 0 || i >= b.rows {
		panic(fmt.Sprintf("comm: row %d of %v as %v", i, b, dtype.Of[T]()))
	}
	p := (*T)(unsafe.Add(b.ptr, i*b.stride*b.dtype.Size()))
	return unsafe.Slice(p, b.cols)
}

// Slice returns rows [lo, hi) of b. Like slicing a slice, it panics when they are not there.
func (b Buffer) Slice(lo, hi int) Buffer {
	if lo < 0 || hi < lo || hi > b.rows {
		panic(fmt.Sprintf("comm: rows [%d, %d) of %v", lo, hi, b))
	}
	off := lo * b.stride * b.dtype.Size()
	if lo == hi {
		off = 0 // never point past the end of a Go allocation
	}
	if b.device.Kind == CPU {
		b.ptr = unsafe.Add(b.ptr, off)
	} else {
		b.addr += uintptr(off)
	}
	b.rows = hi - lo
	return b
}

// Columns returns columns [lo, hi) of b: the same rows and stride, fewer columns. It panics when they are not there.
func (b Buffer) Columns(lo, hi int) Buffer {
	if lo < 0 || hi <= lo || hi > b.cols {
		panic(fmt.Sprintf("comm: columns [%d, %d) of %v", lo, hi, b))
	}
	if off := lo * b.dtype.Size(); b.rows > 0 {
		if b.device.Kind == CPU {
			b.ptr = unsafe.Add(b.ptr, off)
		} else {
			b.addr += uintptr(off)
		}
	}
	b.cols = hi - lo
	return b
}

// RowBytes returns the bytes of row i of a CPU buffer. It panics on a GPU buffer or when there is no such row.
func (b Buffer) RowBytes(i int) []byte {
	if b.device.Kind != CPU || i < 0 || i >= b.rows {
		panic(fmt.Sprintf("comm: row %d of %v", i, b))
	}
	size := b.dtype.Size()
	return unsafe.Slice((*byte)(unsafe.Add(b.ptr, i*b.stride*size)), b.cols*size)
}

// Bytes returns all bytes of a contiguous CPU buffer. It panics on any other.
func (b Buffer) Bytes() []byte {
	if b.device.Kind != CPU || b.stride != b.cols && b.rows > 1 {
		noBytes(&b)
	}
	return unsafe.Slice((*byte)(b.ptr), b.rows*b.cols*b.dtype.Size())
}

//go:noinline
func noBytes(b *Buffer) { panic(fmt.Sprintf("comm: bytes of %v", *b)) }

// Pointer returns the address of the first element in Go memory, which it keeps alive; nil if there is none, as on a GPU.
func (b Buffer) Pointer() unsafe.Pointer { return b.ptr }

// Rows returns the number of rows.
func (b Buffer) Rows() int { return b.rows }

// Cols returns the number of columns.
func (b Buffer) Cols() int { return b.cols }

// Stride returns the distance between rows, in elements.
func (b Buffer) Stride() int { return b.stride }

// DType returns the element type.
func (b Buffer) DType() dtype.DType { return b.dtype }

// Device returns where the memory is.
func (b Buffer) Device() Device { return b.device }

// Addr returns the address of the first element. For a CPU buffer it is the address of Go memory and keeps nothing alive.
func (b Buffer) Addr() uintptr {
	if b.device.Kind == CPU {
		return uintptr(b.ptr)
	}
	return b.addr
}

// IsZero reports whether b is the zero Buffer, "no buffer".
func (b Buffer) IsZero() bool { return b == Buffer{} }

// Contiguous reports whether the rows follow each other without a gap.
func (b Buffer) Contiguous() bool { return b.stride == b.cols || b.rows <= 1 }

// SizeBytes returns the payload bytes: rows x cols x element size, without gaps between rows.
func (b Buffer) SizeBytes() int64 { return int64(b.rows) * int64(b.cols) * int64(b.dtype.Size()) }

// String returns type, shape, stride when it is not the columns, and device, such as "bf16[4, 128] cpu:0".
func (b Buffer) String() string {
	if b.IsZero() {
		return "no buffer"
	}
	if b.stride != b.cols {
		return fmt.Sprintf("%v[%d, %d] stride %d %v", b.dtype, b.rows, b.cols, b.stride, b.device)
	}
	return fmt.Sprintf("%v[%d, %d] %v", b.dtype, b.rows, b.cols, b.device)
}

// Validate reports why b cannot be used: a fault of its construction, an invalid type, a bad stride.
func (b Buffer) Validate() error {
	switch {
	case b.fault != "":
		return fmt.Errorf("%s", b.fault)
	case b.IsZero():
		return fmt.Errorf("no buffer given")
	case !b.dtype.Valid():
		return fmt.Errorf("%v has no element type", b)
	case b.rows < 0 || b.cols <= 0 || b.stride < b.cols:
		return fmt.Errorf("a buffer of shape [%d, %d] with row stride %d", b.rows, b.cols, b.stride)
	}
	return nil
}

// Stream orders work on a GPU. Handle is the caller's CUstream of the device's primary context; the zero Stream is the
// Comm's own. The CPU runs every operation at once and ignores it.
type Stream struct{ Handle uintptr }
