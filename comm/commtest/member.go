package commtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// Member runs about most of the suite's cases, spread over all collectives, types and shapes, on one rank of a world that may
// span processes, and compares every byte as the suite does. Every rank of the world calls it with the same number. Unlike
// TestDriver it opens no world, so that worlds that are slow to open, and slow to wait in, can be tested at all. It returns how
// many cases ran.
func Member(tb testing.TB, c *comm.Comm, most int) int {
	var all []trial
	for _, typ := range dtype.All() {
		for _, k := range kinds {
			all = append(all, shapes(k, typ, c.Size())...)
		}
	}
	for _, k := range kinds {
		all = append(all, several(k, c.Size())...)
	}
	step := max(1, float64(len(all))/float64(max(1, most)))
	ran := 0
	for at := 0.0; int(at) < len(all); at += step {
		x := all[int(at)].pose()
		_, err := x.try(tb, c)
		require.NoError(tb, err, "%v", x)
		ran++
	}
	return ran
}
