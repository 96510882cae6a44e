package eptest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// TestLowLatency runs the whole suite with Config.LowLatency: once with whole calls, and once with calls in halves and other work
// between them.
func TestLowLatency(t *testing.T, create New, open Open) {
	t.Run("whole calls", func(t *testing.T) { TestWith(t, LowLatency(create), open, Traits{LowLatency: true}) })
	t.Run("in halves", func(t *testing.T) {
		TestWith(t, Halves(create), open, Traits{LowLatency: true, brief: true})
	})
	t.Run("refused often", func(t *testing.T) { testRefusedOften(t, newRig(t, LowLatency(create), open)) })
	t.Run("refused while a half waits", func(t *testing.T) { testRefusedPending(t, newRig(t, LowLatency(create), open)) })
}

// testRefusedOften: the others hear of every call of a rank whose calls are wrong again and again, though on a GPU it waits for none of them.
func testRefusedOften(t *testing.T, on *rig) {
	ranks := on.num(3)
	cfg := ep.Config{NumExperts: 6, TopK: 2, Hidden: 8, MaxTokensPerRank: 4}
	err := on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := on.create(ctx, c, cfg)
		if err != nil {
			return err
		}
		n, text := 4, "rank 1 refused its call"
		if c.Rank() == 1 {
			n, text = 5, "5 tokens > MaxTokensPerRank 4"
		}
		rows, ids, weights := comm.Of(make([]float32, 8*n), 8), comm.Of(make([]int32, 2*n), 2), comm.Of(make([]float32, 2*n), 2)
		for i := range 25 {
			if _, err := x.Dispatch(comm.Stream{}, rows, ep.Routing{IDs: ids, Weights: weights}); !isInvalid(err, text) {
				return fmt.Errorf("rank %d, call %d: %v", c.Rank(), i, err)
			}
		}
		return errors.Join(run(ctx, c, x, NewStep("after", x.Config(), 1, even(ranks, 4), distinct), options{}), x.Close(ctx))
	})
	require.NoError(t, err)
}

// testRefusedPending: the others hear of a refused call also when they end it after many later calls of another bank, all refused too.
func testRefusedPending(t *testing.T, on *rig) {
	ranks := on.num(3)
	cfg := ep.Config{NumExperts: 6, TopK: 2, Hidden: 8, MaxTokensPerRank: 4, Banks: 2}
	err := on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := on.create(ctx, c, cfg)
		if err != nil {
			return err
		}
		two := x.(ep.Splitter)
		n, text := 4, "rank 1 refused its call"
		if c.Rank() == 1 {
			n, text = 5, "5 tokens > MaxTokensPerRank 4"
		}
		rows, ids, weights := comm.Of(make([]float32, 8*n), 8), comm.Of(make([]int32, 2*n), 2), comm.Of(make([]float32, 2*n), 2)
		send := func() (*ep.Received, error) {
			return two.DispatchSend(comm.Stream{}, rows, ep.Routing{IDs: ids, Weights: weights})
		}
		for round := range 3 {
			first, err := send()
			if err != nil {
				return err
			}
			for i := range 11 {
				r, err := send()
				if err != nil {
					return err
				}
				if err := two.DispatchRecv(comm.Stream{}, r); !isInvalid(err, text) {
					return fmt.Errorf("rank %d, round %d, call %d: %v", c.Rank(), round, i, err)
				}
			}
			if err := two.DispatchRecv(comm.Stream{}, first); !isInvalid(err, text) {
				return fmt.Errorf("rank %d, round %d, the first call: %v", c.Rank(), round, err)
			}
		}
		return errors.Join(run(ctx, c, x, NewStep("after", x.Config(), 1, even(ranks, 4), distinct), options{}), x.Close(ctx))
	})
	require.NoError(t, err)
}

// TestTwinLowLatency is TestTwin with Config.LowLatency, for the cases that can have it, with as many tokens as it takes.
func TestTwinLowLatency(t *testing.T, create New, onHost, open Open) {
	var cases []twinCase
	for _, tc := range twinCases() {
		if tc.cfg.MaxRecvRows > 0 {
			continue
		}
		tc.cfg.MaxTokensPerRank = min(tc.cfg.MaxTokensPerRank, ep.MaxLowLatencyTokens)
		for _, tokens := range tc.tokens {
			for r := range tokens {
				tokens[r] = min(tokens[r], ep.MaxLowLatencyTokens)
			}
		}
		cases = append(cases, tc)
	}
	runTwins(t, LowLatency(create), onHost, open, cases)
}

// withoutGaps is packed of the rows that came.
func withoutGaps(cfg ep.Config, r *ep.Received, b comm.Buffer) []byte {
	if !cfg.LowLatency {
		return packed(b)
	}
	rows := list[int32](r.Index.Row)
	var x []byte
	for i := range b.Rows() {
		if slices.Contains(rows, int32(i)) {
			x = append(x, b.RowBytes(i)...)
		}
	}
	return x
}

// TestBriefLowLatency is TestBrief with Config.LowLatency, in halves and not.
func TestBriefLowLatency(t *testing.T, create New, open Open) {
	exchange.Poison.Store(true)
	t.Cleanup(func() { exchange.Poison.Store(false) })
	const ranks = 2
	for name, create := range map[string]New{"whole": LowLatency(create), "halves": Halves(create)} {
		on := newRig(t, create, open)
		for _, cfg := range []ep.Config{
			{Hidden: 130, MaxTokensPerRank: 40, Alignment: 4},
			{Hidden: 130, MaxTokensPerRank: 40, Wire: dtype.F8E4M3, Output: ep.PartialRows},
			{Hidden: 16, MaxTokensPerRank: 8, RankInvariant: true},
		} {
			cfg.NumExperts, cfg.TopK = 5, 3
			t.Run(fmt.Sprintf("%s hidden %d %v invariant %v", name, cfg.Hidden, cfg.Output, cfg.RankInvariant), func(t *testing.T) {
				full := cfg.WithDefaults(ranks)
				steps(t, on, ranks, cfg, options{gap: 3, numBias: 2}, NewStep("few", full, 1, []int{3, 0}, dirty),
					NewStep("many", full, 2, []int{cfg.MaxTokensPerRank, 5}, dirty))
			})
		}
	}
}

// LowLatency makes exchangers with Config.LowLatency, which know one layout.
func LowLatency(create New) New {
	return func(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
		cfg.LowLatency, cfg.Layout = true, ep.Rows
		return create(ctx, c, cfg)
	}
}

// Halves makes exchangers with Config.LowLatency whose every Dispatch and Combine is two calls. Between them are an all-reduce and a
// dispatch and a combine of an exchanger of another shape without that mode.
func Halves(create New) New {
	return func(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
		x, err := LowLatency(create)(ctx, c, cfg)
		if err != nil {
			return nil, err
		}
		h := &inHalves{Exchanger: x, two: x.(ep.Splitter), c: c}
		return h, h.prepare(ctx, create)
	}
}

type inHalves struct {
	ep.Exchanger
	two   ep.Splitter
	c     *comm.Comm
	other ep.Exchanger

	x, ids, weights, out, sum comm.Buffer // of the work between
	worked                    bool        // between has run
}

const otherHidden = 5

// prepare makes what the work between needs, so that it allocates no memory for tensors: token 0 goes to expert 0 of three, and an
// all-reduce adds up ones.
func (h *inHalves) prepare(ctx context.Context, create New) (err error) {
	if h.other, err = create(ctx, h.c, ep.Config{NumExperts: 3, TopK: 1, Hidden: otherHidden, MaxTokensPerRank: 1, Output: ep.PartialRows}); err != nil {
		return err
	}
	for _, v := range []struct {
		to   *comm.Buffer
		from comm.Buffer
	}{
		{&h.x, comm.Of([]float32{1, 2, 3, 4, float32(h.c.Rank())}, otherHidden)}, {&h.ids, comm.Of([]int32{int32(h.c.Rank() % 3)}, 1)},
		{&h.weights, comm.Of([]float32{1}, 1)}, {&h.out, comm.Of(make([]float32, otherHidden), otherHidden)}, {&h.sum, comm.Of([]float32{1}, 1)},
	} {
		if *v.to, err = comm.Alloc(h.c, v.from.DType(), 1, v.from.Cols()); err == nil {
			err = comm.Copy(h.c, comm.Stream{}, *v.to, v.from)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// between is the work between two halves.
func (h *inHalves) between(s comm.Stream) error {
	if err := h.c.AllReduce(s, h.sum, h.sum, comm.Max); err != nil {
		return err
	}
	r, err := h.other.Dispatch(s, h.x, ep.Routing{IDs: h.ids, Weights: h.weights})
	if err != nil {
		return err
	}
	if err := comm.Copy(h.c, s, r.Y, r.X); err != nil {
		return err
	}
	h.worked = true
	return h.other.Combine(s, h.out, r.Y, r)
}

func (h *inHalves) Dispatch(s comm.Stream, x comm.Buffer, r ep.Routing) (*ep.Received, error) {
	got, err := h.two.DispatchSend(s, x, r)
	if err == nil {
		err = h.between(s)
	}
	if err == nil {
		err = h.two.DispatchRecv(s, got)
	}
	if err != nil {
		return nil, err
	}
	return got, nil
}

func (h *inHalves) Combine(s comm.Stream, out, y comm.Buffer, r *ep.Received, bias ...comm.Buffer) error {
	if err := h.two.CombineSend(s, y, r); err != nil {
		return err
	}
	if err := h.between(s); err != nil {
		return err
	}
	return h.two.CombineRecv(s, out, r, bias...)
}

func (h *inHalves) Stats() ep.Stats { return h.Exchanger.(ep.Meter).Stats() }

func (h *inHalves) DispatchSend(s comm.Stream, x comm.Buffer, r ep.Routing) (*ep.Received, error) {
	return h.two.DispatchSend(s, x, r)
}
func (h *inHalves) DispatchRecv(s comm.Stream, r *ep.Received) error { return h.two.DispatchRecv(s, r) }
func (h *inHalves) CombineSend(s comm.Stream, y comm.Buffer, r *ep.Received) error {
	return h.two.CombineSend(s, y, r)
}
func (h *inHalves) CombineRecv(s comm.Stream, out comm.Buffer, r *ep.Received, bias ...comm.Buffer) error {
	return h.two.CombineRecv(s, out, r, bias...)
}

// Close also checks what the work between brought.
func (h *inHalves) Close(ctx context.Context) error {
	err := errors.Join(h.Exchanger.Close(ctx), h.other.Close(ctx))
	if h.x.IsZero() {
		return err
	}
	in, out := make([]float32, otherHidden), make([]float32, otherHidden)
	err = errors.Join(err, comm.Copy(h.c, comm.Stream{}, comm.Of(in, otherHidden), h.x), comm.Copy(h.c, comm.Stream{}, comm.Of(out, otherHidden), h.out))
	if err == nil && h.worked && fmt.Sprint(in) != fmt.Sprint(out) {
		err = fmt.Errorf("rank %d: the exchange between the halves brought %v of %v", h.c.Rank(), out, in)
	}
	for _, b := range []*comm.Buffer{&h.x, &h.ids, &h.weights, &h.out, &h.sum} {
		err = errors.Join(err, comm.Free(h.c, *b))
		*b = comm.Buffer{}
	}
	return err
}

// DispatchSend copies in and sends.
func (x *remote) DispatchSend(s comm.Stream, rows comm.Buffer, r ep.Routing) (*ep.Received, error) {
	var used []comm.Buffer
	defer func() { x.free(used) }()
	var err error
	for _, b := range []*comm.Buffer{&rows, &r.IDs, &r.Weights, &r.NumTokens, &r.Scales} {
		if *b, err = x.up(*b, &used); err != nil {
			return nil, err
		}
	}
	dev, err := x.Exchanger.(ep.Splitter).DispatchSend(s, rows, r)
	if err != nil {
		return nil, err
	}
	near := &ep.Received{}
	near.State = &far{near, dev}
	for _, b := range used { // what was sent may be overwritten at once
		if err := x.scribble(s, b); err != nil {
			return nil, err
		}
	}
	return near, nil
}

// scribble fills a buffer on the device in stream order.
func (x *remote) scribble(s comm.Stream, b comm.Buffer) error {
	raw := make([]int64, b.SizeBytes()/8+1)
	for i := range raw {
		raw[i] = -1
	}
	return comm.Copy(x.c, s, b, comm.OfBytes(bytesOf(raw)[:b.SizeBytes()], b.DType(), b.Rows(), b.Cols()))
}

// DispatchRecv receives, waits and copies out.
func (x *remote) DispatchRecv(s comm.Stream, r *ep.Received) error {
	f, ok := r.State.(*far)
	if !ok {
		return x.Exchanger.(ep.Splitter).DispatchRecv(s, r)
	}
	if err := x.Exchanger.(ep.Splitter).DispatchRecv(s, f.dev); err != nil {
		return err
	}
	if err := x.fetch(s, f.near, f.dev); err != nil {
		f.Release()
		return err
	}
	return nil
}

// CombineSend copies in and sends.
func (x *remote) CombineSend(s comm.Stream, y comm.Buffer, r *ep.Received) error {
	f, ok := r.State.(*far)
	if !ok || f.dev.Y.IsZero() {
		return x.Exchanger.(ep.Splitter).CombineSend(s, y, f.received(r))
	}
	var used []comm.Buffer
	defer func() { x.free(used) }()
	devY, err := x.upRows(y, f.dev.Y.Rows(), &used)
	if err == nil {
		err = x.Exchanger.(ep.Splitter).CombineSend(s, devY, f.dev)
	}
	if err == nil {
		err = x.scribble(s, used[0])
	}
	return err
}

// received is the device's own result.
func (f *far) received(r *ep.Received) *ep.Received {
	if f == nil {
		return r
	}
	return f.dev
}

// CombineRecv receives, waits and copies out.
func (x *remote) CombineRecv(s comm.Stream, out comm.Buffer, r *ep.Received, bias ...comm.Buffer) error {
	f, _ := r.State.(*far)
	var used []comm.Buffer
	defer func() { x.free(used) }()
	devOut, err := x.up(out, &used)
	if err != nil {
		return err
	}
	var devBias []comm.Buffer
	for _, b := range bias {
		d, err := x.up(b, &used)
		if err != nil {
			return err
		}
		devBias = append(devBias, d)
	}
	if err := x.Exchanger.(ep.Splitter).CombineRecv(s, devOut, f.received(r), devBias...); err != nil {
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
