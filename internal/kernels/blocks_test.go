package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOver: a grid for work items of a warp has a block for each, up to the multiprocessors or what the caller allows.
func TestOver(t *testing.T) {
	const perBlock = Threads / 32
	s := &ExchangeSet{numSMs: 20}
	for _, x := range []struct{ warps, most, want int }{
		{0, 0, 1}, {1, 0, 1}, {perBlock + 1, 0, 2}, {1000 * perBlock, 0, 20}, {1000 * perBlock, 7, 7}, {3 * perBlock, 7, 3}, {1000 * perBlock, 99, 20},
	} {
		l := s.over(x.warps, x.most)
		require.EqualValues(t, x.want, l.Grid[0], "%+v", x)
	}
}
