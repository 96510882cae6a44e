package eptest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
)

// rig is the strategy and the driver under test.
type rig struct {
	make   New
	open   Open
	worlds map[int]*comm.World
	traits Traits
}

// num is the number of ranks of a test that wants so many.
func (r *rig) num(ranks int) int {
	if r.traits.Ranks > 0 {
		return r.traits.Ranks
	}
	return ranks
}

// nums is num for a test of several.
func (r *rig) nums(list ...int) []int {
	if r.traits.Ranks > 0 {
		return []int{r.traits.Ranks}
	}
	return list
}

// tokens is how many a rank has in a test that wants so many.
func (r *rig) tokens(n int) int {
	if r.traits.LowLatency {
		return min(n, ep.MaxLowLatencyTokens)
	}
	return n
}

// bytes bounds a rank's memory.
func (r *rig) bytes(cfg ep.Config, ranks int) (symmetric, private int64) {
	if r.traits.Bytes != nil {
		return r.traits.Bytes(cfg)
	}
	return cfg.Bytes(ranks)
}

func newRig(t *testing.T, create New, open Open) *rig {
	on := &rig{make: create, open: open, worlds: map[int]*comm.World{}}
	t.Cleanup(on.close)
	return on
}

// create makes an exchanger that takes buffers of the host, wherever its ranks are.
func (r *rig) create(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
	x, err := r.make(ctx, c, cfg)
	if err != nil {
		return nil, err
	}
	return OnHost(x, c), nil
}

// world returns a world of so many ranks: the one that was used before if it lives.
func (r *rig) world(t testing.TB, ranks int) *comm.World {
	if w := r.worlds[ranks]; w != nil && w.Err() == nil {
		return w
	}
	w := r.open(t, ranks, 30*time.Second)
	if old := r.worlds[ranks]; old != nil {
		_ = old.Close(context.Background())
	}
	r.worlds[ranks] = w
	return w
}

func (r *rig) close() {
	for _, w := range r.worlds {
		_ = w.Close(context.Background())
	}
}

// OnHost makes of an exchanger on a GPU one that takes buffers of the host: it copies, waits, and copies back.
func OnHost(x ep.Exchanger, c *comm.Comm) ep.Exchanger {
	if c.Device().Kind == comm.CPU {
		return x
	}
	return &remote{Exchanger: x, c: c}
}

// remote runs an exchanger on a GPU for tests that hold everything on the host: it copies to the device, waits, and
// copies back what came, cut to what there is.
type remote struct {
	ep.Exchanger
	c *comm.Comm
}

// far is the State of a result on the host.
type far struct{ near, dev *ep.Received }

func (f *far) Release() {
	f.dev.Release()
	f.near.X, f.near.Y, f.near.Index = comm.Buffer{}, comm.Buffer{}, ep.Index{}
}

func (x *remote) Stats() ep.Stats { return x.Exchanger.(ep.Meter).Stats() }

// up copies b to the device, gaps between rows included. Buffers that no call accepts go as they are.
func (x *remote) up(b comm.Buffer, used *[]comm.Buffer) (comm.Buffer, error) {
	if b.Validate() != nil {
		return b, nil
	}
	return x.upRows(b, b.Rows(), used)
}

// upRows is up with room for rows rows.
func (x *remote) upRows(b comm.Buffer, rows int, used *[]comm.Buffer) (comm.Buffer, error) {
	d, err := comm.Alloc(x.c, b.DType(), rows, b.Stride())
	if err != nil {
		return d, err
	}
	*used = append(*used, d)
	d = d.Columns(0, b.Cols())
	return d, comm.Copy(x.c, comm.Stream{}, d.Slice(0, b.Rows()), b)
}

func (x *remote) free(used []comm.Buffer) {
	for _, b := range used {
		_ = comm.Free(x.c, b)
	}
}

// down copies b to new memory of the host.
func (x *remote) down(b comm.Buffer) (comm.Buffer, error) {
	if b.IsZero() {
		return b, nil
	}
	raw := make([]int64, (b.SizeBytes()+7)/8+1)
	h := comm.OfBytes(bytesOf(raw), b.DType(), b.Rows(), b.Cols())
	if b.Rows() == 0 {
		return h, nil
	}
	return h, comm.Copy(x.c, comm.Stream{}, h, b)
}

func bytesOf(x []int64) []byte { return comm.Of(x, len(x)).Bytes() }

// Dispatch copies in, dispatches, waits and copies out.
func (x *remote) Dispatch(s comm.Stream, rows comm.Buffer, r ep.Routing) (*ep.Received, error) {
	var used []comm.Buffer
	defer func() { x.free(used) }()
	var err error
	for _, b := range []*comm.Buffer{&rows, &r.IDs, &r.Weights, &r.NumTokens, &r.Scales} {
		if *b, err = x.up(*b, &used); err != nil {
			return nil, err
		}
	}
	dev, err := x.Exchanger.Dispatch(s, rows, r)
	if err != nil {
		return nil, err
	}
	near := &ep.Received{}
	near.State = &far{near, dev}
	if err := x.fetch(s, near, dev); err != nil {
		dev.Release()
		return nil, err
	}
	return near, nil
}

// fetch waits for a result and copies it.
func (x *remote) fetch(s comm.Stream, near, dev *ep.Received) error {
	if err := x.c.Wait(context.Background(), s); err != nil {
		return err
	}
	var err error
	copyTo := func(to *comm.Buffer, from comm.Buffer) {
		if err == nil {
			*to, err = x.down(from)
		}
	}
	copyTo(&near.NumRows, dev.NumRows)
	copyTo(&near.Dropped, dev.Dropped)
	copyTo(&near.Index.Counts, dev.Index.Counts)
	copyTo(&near.Index.Offsets, dev.Index.Offsets)
	if err != nil {
		return err
	}
	offsets := list[int32](near.Index.Offsets)
	numRows, numSlots := int(list[int32](near.NumRows)[0]), int(offsets[len(offsets)-1])
	cfg := x.Config()
	if cfg.LowLatency {
		numRows = cfg.MaxRecvRows
	}
	rows, output := numRows, numSlots
	if cfg.Layout == ep.Expanded {
		rows = numSlots
	}
	if cfg.Output == ep.PartialRows {
		output = numRows
	}
	copyTo(&near.X, dev.X.Slice(0, rows))
	if !dev.Scales.IsZero() {
		copyTo(&near.Scales, dev.Scales.Slice(0, rows))
	}
	copyTo(&near.Y, dev.Y.Slice(0, output))
	for _, v := range []struct {
		to   *comm.Buffer
		from comm.Buffer
	}{{&near.Index.Row, dev.Index.Row}, {&near.Index.K, dev.Index.K}, {&near.Index.Weight, dev.Index.Weight}} {
		if numSlots == 0 {
			*v.to = comm.OfBytes(bytesOf(make([]int64, 1)), v.from.DType(), 0, 1)
			continue
		}
		copyTo(v.to, v.from.Columns(0, numSlots))
	}
	if err != nil {
		return err
	}
	return sameExperts(near, dev)
}

// sameExperts compares what the device's own Experts yields with the copy's.
func sameExperts(near, dev *ep.Received) error {
	var a, b [][3]int
	for e, span := range near.Experts(context.Background()) {
		a = append(a, [3]int{e, span[0], span[1]})
	}
	for e, span := range dev.Experts(context.Background()) {
		b = append(b, [3]int{e, span[0], span[1]})
	}
	if c, ok := dev.State.(ep.Counter); ok {
		if _, _, err := c.Counts(context.Background()); err != nil {
			return err // a rank died meanwhile
		}
	}
	if !slices.Equal(a, b) {
		return fmt.Errorf("the experts on the device yield %v, on its copy %v", b, a)
	}
	return nil
}

// Combine copies in, combines, waits and copies out.
func (x *remote) Combine(s comm.Stream, out, y comm.Buffer, r *ep.Received, bias ...comm.Buffer) error {
	f, ok := r.State.(*far)
	if !ok {
		return x.Exchanger.Combine(s, out, y, r, bias...)
	}
	var used []comm.Buffer
	defer func() { x.free(used) }()
	dev := f.dev
	var devY comm.Buffer
	var err error
	switch {
	case dev.Y.IsZero(): // it was taken
	case y.Addr() == f.near.Y.Addr() && y.Rows() > 0:
		devY, err = dev.Y, comm.Copy(x.c, comm.Stream{}, dev.Y.Slice(0, y.Rows()), y)
	default:
		devY, err = x.upRows(y, dev.Y.Rows(), &used)
	}
	if err != nil {
		return err
	}
	devOut, err := x.up(out, &used)
	if err != nil {
		return err
	}
	devBias := slices.Clone(bias)
	for i := range bias {
		if devBias[i], err = x.up(bias[i], &used); err != nil {
			return err
		}
	}
	if err := x.Exchanger.Combine(s, devOut, devY, dev, devBias...); err != nil {
		return err
	}
	f.near.Index = ep.Index{}
	if err := x.c.Wait(context.Background(), s); err != nil {
		return err
	}
	if out.Rows() == 0 {
		return nil
	}
	return comm.Copy(x.c, comm.Stream{}, out, devOut)
}
