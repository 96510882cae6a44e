package suite

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/gputest"
)

// On GPU 0, which three ranks share: every operation is timed call by call, in a graph and on the host, and its data are
// right; a driver that spoils an element is found out.
func TestOnGPU(t *testing.T) {
	dev := comm.Device{Kind: comm.CUDA, Index: gputest.Device(t).Ordinal()}
	w, err := p2p.Open(t.Context(), p2p.Config{Devices: []comm.Device{dev, dev, dev}, Timeout: 20 * time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close(context.Background())) }()
	for i := range Operations {
		op := &Operations[i]
		b, err := New(w, Setup{Op: op, Type: dtype.BF16, Unalign: i % 2, Load: Load{Skew: 0.5, Zeros: i%2 == 0}, Seed: 3})
		require.NoError(t, err)
		for _, timing := range []Timing{{Iters: 3}, {Iters: 3, Graph: 2}, {Iters: 3, CPUTime: true}, {Iters: 3, PerIter: true}, {Budget: time.Millisecond}} {
			for _, form := range forms(op) {
				for _, size := range []int64{0, 6, 4096, 3 << 20} {
					res, err := b.Measure(t.Context(), size, form, timing, 1)
					require.NoError(t, err, "%s %d bytes %+v", op.Name, size, timing)
					require.LessOrEqual(t, res.Wrong, int64(0), "%s %d bytes %+v", op.Name, size, timing)
					require.Positive(t, res.TimeUs)
				}
			}
		}
		require.NoError(t, b.Close())
	}
}
