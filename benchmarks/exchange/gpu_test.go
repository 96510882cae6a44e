package exchange

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/benchmarks/suite"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/gputest"
)

// On GPU 0, which three ranks share, rows, index and sums are right for both strategies; the layer says that it computes on
// the host.
func TestOnGPU(t *testing.T) {
	dev := comm.Device{Kind: comm.CUDA, Index: gputest.Device(t).Ordinal()}
	w, err := p2p.Open(t.Context(), p2p.Config{Devices: []comm.Device{dev, dev, dev}, Timeout: 20 * time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close(context.Background())) }()
	for _, backend := range []string{"agrs", "alltoall"} {
		for _, fp8 := range []bool{false, true} {
			s := Setup{Backend: backend, Tokens: []int{40, 0, 7}, Hidden: 256, Experts: 10, TopK: 3, Intermediate: 64, Type: dtype.BF16, FP8: fp8, Seed: 5}
			results, err := Measure(t.Context(), w, s, []string{"dispatch", "combine"}, suite.Timing{Iters: 3, Warmup: 1}, 2)
			require.NoError(t, err)
			for _, r := range results {
				require.Zero(t, r.Wrong, "%s %s fp8 %v", backend, r.Op, fp8)
				require.Positive(t, r.P50Us)
				require.Positive(t, r.CopiesPerToken)
			}
		}
	}
	_, err = Measure(t.Context(), w, Setup{Backend: "agrs", Tokens: []int{4, 4, 4}, Hidden: 256, Experts: 10, TopK: 3, Intermediate: 64, Type: dtype.BF16},
		[]string{"moe_layer"}, suite.Timing{Iters: 3}, 1)
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorContains(t, err, "--driver staged")
}
