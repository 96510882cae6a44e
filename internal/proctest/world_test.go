package proctest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWorld runs the checks on a world of one process: they are right where nothing is wrong.
func TestWorld(t *testing.T) {
	for _, ranks := range []int{2, 4, 8} {
		w, err := local.Open(local.Config{Ranks: ranks})
		require.NoError(t, err)
		t.Log(World(t, w, 60))
		require.NoError(t, w.Close(context.Background()))
	}
}
