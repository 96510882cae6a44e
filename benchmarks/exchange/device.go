package exchange

import (
	"errors"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
)

// mover takes tensors of the host to a rank's device and back. Where the device is the CPU it hands out what it is given.
type mover struct {
	c     *comm.Comm
	owned []comm.Buffer

	lowLatency bool // rows have fixed places, up to the last of X
}

func (m *mover) onHost() bool { return m.c.Device().Kind == comm.CPU }

// up returns the device's copy of b.
func (m *mover) up(b comm.Buffer) (comm.Buffer, error) {
	if m.onHost() {
		return b, nil
	}
	d, err := comm.Alloc(m.c, b.DType(), max(1, b.Rows()), b.Cols())
	if err != nil {
		return comm.Buffer{}, err
	}
	m.owned = append(m.owned, d)
	d = d.Slice(0, b.Rows())
	return d, comm.Copy(m.c, comm.Stream{}, d, b)
}

// down returns the host's copy of b.
func (m *mover) down(b comm.Buffer) (comm.Buffer, error) {
	if m.onHost() || b.IsZero() {
		return b, nil
	}
	h := m.host(b)
	return h, comm.Copy(m.c, comm.Stream{}, h, b)
}

// host makes host memory of b's shape.
func (m *mover) host(b comm.Buffer) comm.Buffer {
	raw := make([]int64, (b.SizeBytes()+7)/8+1)
	return comm.OfBytes(comm.Of(raw, 1).Bytes(), b.DType(), b.Rows(), b.Cols())
}

// received returns what a dispatch brought, on the host, without the room that buffers on a GPU have beyond their rows. Its Y
// is empty memory.
func (m *mover) received(got *ep.Received) (*ep.Received, error) {
	if m.onHost() {
		return got, nil
	}
	number, err := m.down(got.NumRows)
	if err != nil {
		return nil, err
	}
	n := int(comm.Row[int32](number, 0)[0])
	if m.lowLatency {
		n = got.X.Rows()
	}
	h := &ep.Received{NumRows: number, Y: m.host(got.Y.Slice(0, n))}
	scales := got.Scales
	if !scales.IsZero() {
		scales = scales.Slice(0, n)
	}
	var errs []error
	for _, x := range []struct {
		to   *comm.Buffer
		from comm.Buffer
	}{
		{&h.X, got.X.Slice(0, n)}, {&h.Scales, scales}, {&h.Index.Row, got.Index.Row}, {&h.Index.K, got.Index.K},
		{&h.Index.Weight, got.Index.Weight}, {&h.Index.Counts, got.Index.Counts}, {&h.Index.Offsets, got.Index.Offsets},
	} {
		*x.to, err = m.down(x.from)
		errs = append(errs, err)
	}
	return h, errors.Join(errs...)
}

// close frees what up made.
func (m *mover) close() error {
	var errs []error
	for _, b := range m.owned {
		errs = append(errs, comm.Free(m.c, b))
	}
	m.owned = nil
	return errors.Join(errs...)
}
