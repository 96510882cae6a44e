package staged

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
)

// closing counts how often the driver's end of a rank is closed.
type closing struct {
	comm.Conn
	times atomic.Int32
}

func (c *closing) Close(ctx context.Context) error {
	c.times.Add(1)
	return c.Conn.Close(ctx)
}

// A rank that is stuck in a call when the others go on without it closes its end of the world below when it comes back: only then
// can the driver give back what the rank has.
func TestWithoutStuckRank(t *testing.T) {
	const ranks, stuck = 3, 1
	r := newRig(t, ranks, 5*time.Second, Config{})
	in := r.World.Local()[stuck].Conn().(*conn)
	end := &closing{Conn: in.in}
	in.in = end
	release, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- r.Run(t.Context(), func(_ context.Context, c *comm.Comm) error {
			if c.Rank() == stuck {
				<-release
			}
			return errors.New("it does not come")
		})
	}()
	<-r.Done()
	next, err := r.Without(t.Context(), stuck)
	require.NoError(t, err)
	require.Zero(t, end.times.Load(), "it may still be in a call")
	close(release)
	require.Error(t, <-ended)
	require.NoError(t, r.World.Close(t.Context()))
	require.EqualValues(t, 1, end.times.Load())
	require.NoError(t, next.Close(t.Context()))
}
