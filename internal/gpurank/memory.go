package gpurank

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
)

// pinnedBytes is the pinned memory of a rank.
const pinnedBytes = 1 << 20

// Mover is how a driver copies.
type Mover interface {
	// Move enqueues a copy between two buffers that the device reaches. Rows may have gaps; the shapes are equal.
	Move(st *cuda.Stream, dst, src comm.Buffer) error
	// Drain waits for the work of st.
	Drain(st *cuda.Stream) error
}

// Memory copies for one rank. One goroutine uses it at a time.
type Memory struct {
	Rank    int // in the world
	Device  comm.Device
	Streams *Streams
	Pinned  *cuda.Pinned // the way between the host and the device; drivers use it for their tables too, between copies
}

// Open takes the pinned memory.
func (m *Memory) Open(dev *cuda.Device) (err error) {
	m.Pinned, err = dev.AllocHost(pinnedBytes)
	return err
}

// Close gives it back.
func (m *Memory) Close() error {
	if m.Pinned == nil {
		return nil
	}
	return m.Pinned.Close()
}

// Copy copies rows between two buffers of the device, which it enqueues, or between the host and the device, which it waits
// for: host memory goes through the pinned memory in pieces. Buffers of another device are Invalid.
func (m *Memory) Copy(mover Mover, s comm.Stream, dst, src comm.Buffer) error {
	for _, b := range [2]comm.Buffer{dst, src} {
		if !onHost(b) && b.Device() != m.Device {
			return comm.Errorf("copy", m.Rank, comm.Invalid, "%v is not on this rank's device %v", b, m.Device)
		}
	}
	if onHost(dst) && onHost(src) {
		for i := range dst.Rows() {
			copy(dst.RowBytes(i), src.RowBytes(i))
		}
		return nil
	}
	st, err := m.Streams.Of(s)
	if err == nil {
		err = m.Streams.Order(st)
	}
	if err != nil {
		return Fail("copy", m.Rank, err)
	}
	switch {
	case dst.Rows() == 0 || dst.Cols() == 0:
		return nil
	case onHost(dst) || onHost(src):
		return m.bounce(mover, st, dst, src)
	}
	return m.move(mover, st, dst, src)
}

func onHost(b comm.Buffer) bool { return b.Device().Kind == comm.CPU }

func (m *Memory) move(mover Mover, st *cuda.Stream, dst, src comm.Buffer) error {
	if err := mover.Move(st, dst, src); err != nil {
		return Fail("copy", m.Rank, err)
	}
	return nil
}

// bounce copies as many rows at a time as fit the pinned memory, or columns of one row.
func (m *Memory) bounce(mover Mover, st *cuda.Stream, dst, src comm.Buffer) error {
	rowBytes := dst.Cols() * dst.DType().Size()
	if rowBytes > pinnedBytes {
		half := dst.Cols() / 2
		if err := m.bounce(mover, st, dst.Columns(0, half), src.Columns(0, half)); err != nil {
			return err
		}
		return m.bounce(mover, st, dst.Columns(half, dst.Cols()), src.Columns(half, src.Cols()))
	}
	step := pinnedBytes / rowBytes
	for lo := 0; lo < dst.Rows(); lo += step {
		hi := min(dst.Rows(), lo+step)
		if err := m.piece(mover, st, dst.Slice(lo, hi), src.Slice(lo, hi)); err != nil {
			return err
		}
	}
	return nil
}

// piece copies rows that fit the pinned memory.
func (m *Memory) piece(mover Mover, st *cuda.Stream, dst, src comm.Buffer) error {
	rowBytes := dst.Cols() * dst.DType().Size()
	memory := m.Pinned.Bytes()
	packed := comm.At(m.Device, m.Pinned.Addr(), dst.DType(), dst.Rows(), dst.Cols(), dst.Cols())
	upload := onHost(src)
	to, from := packed, src
	if upload {
		for i := range src.Rows() {
			copy(memory[i*rowBytes:], src.RowBytes(i))
		}
		to, from = dst, packed
	}
	if err := m.move(mover, st, to, from); err != nil {
		return err
	}
	if err := mover.Drain(st); err != nil {
		return err
	}
	if !upload {
		for i := range dst.Rows() {
			copy(dst.RowBytes(i), memory[i*rowBytes:(i+1)*rowBytes])
		}
	}
	return nil
}
