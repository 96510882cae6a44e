package comm_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
)

// The rank that goes first may only blame another one; what that one says comes out of Run.
func TestRunReturnsTheCulpritsError(t *testing.T) {
	why := errors.New("513 tokens > 512")
	run := func(said error) error {
		w, err := local.Open(local.Config{Ranks: 4})
		require.NoError(t, err)
		defer w.Close(context.Background())
		blamed := make(chan struct{})
		return w.Run(t.Context(), func(_ context.Context, c *comm.Comm) error {
			switch c.Rank() {
			case 1:
				defer close(blamed)
				return &comm.Error{Op: "dispatch", Rank: 1, Peer: 2, Code: comm.Invalid, Err: errors.New("rank 2 refused its call")}
			case 2:
				<-blamed
				return said
			}
			return nil
		})
	}
	require.ErrorIs(t, run(why), why)
	require.ErrorContains(t, run(nil), "rank 2 refused its call")
	// Two ranks that blame each other do not send Run round in circles.
	require.ErrorIs(t, run(&comm.Error{Op: "dispatch", Rank: 2, Peer: 1, Code: comm.Invalid, Err: why}), comm.Invalid)
}
