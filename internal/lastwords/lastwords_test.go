package lastwords

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The reason of a death arrives as an error of the same class that blames the same rank.
func TestWords(t *testing.T) {
	cause := fmt.Errorf("run: %w", &comm.Error{Op: "all_reduce #3", Rank: 2, Peer: 5, Code: comm.Timeout, Err: errors.New("waited 3s for rank 5")})
	got := parse(words(cause, 0))
	require.ErrorIs(t, got, comm.Timeout)
	require.EqualError(t, got, "all_reduce #3: rank 2: timeout (rank 5): waited 3s for rank 5 (in another process)")
	got = parse(words(errors.New("enough"), 4))
	require.ErrorIs(t, got, comm.Aborted)
	require.ErrorContains(t, got, "rank 4")
	for _, odd := range []string{"", "{", `{"Code":99}`, `{"Code":999}`} {
		require.ErrorIs(t, parse([]byte(odd)), comm.Remote, "%q", odd)
	}
}

// said is what a Line heard.
type said struct {
	err       error
	fromStore bool
}

// One process tells, the other two hear it; who heard does not tell again, and the one that told hears nothing.
func TestTell(t *testing.T) {
	s := rendezvous.NewMemory()
	heard := make([]chan said, 3)
	lines := make([]*Line, 3)
	for i := range lines {
		heard[i] = make(chan said, 2)
		lines[i] = Listen(s, "w/dead", func(err error, fromStore bool) { heard[i] <- said{err, fromStore} })
	}
	lines[1].Tell(comm.Errorf("barrier #2", 1, comm.Invalid, "first"), 1)
	for _, i := range []int{0, 2} {
		x := <-heard[i]
		require.False(t, x.fromStore)
		require.ErrorIs(t, x.err, comm.Invalid)
		require.EqualError(t, x.err, "barrier #2: rank 1: invalid: first (in another process)")
	}
	lines[0].Tell(errors.New("second"), 0)
	for i, l := range lines {
		l.Tell(errors.New("after"), i)
		l.Close()
		l.Close()
		require.Empty(t, heard[i])
	}
	b, err := s.Get(t.Context(), "w/dead")
	require.NoError(t, err)
	require.Contains(t, string(b), "first")
}

// impatient is a store that bounds its waits, and then breaks.
type impatient struct {
	rendezvous.Store
	left int
}

func (s *impatient) Get(ctx context.Context, key string) ([]byte, error) {
	if s.left--; s.left >= 0 {
		return nil, &comm.Error{Op: "store", Peer: comm.NoPeer, Code: comm.Timeout}
	}
	return nil, &comm.Error{Op: "store", Peer: 2, Code: comm.Remote}
}

// A wait that the store ended goes on; the loss of a process is heard as it is. A Tell to a store that hangs ends by itself, and
// Close ends a watch.
func TestStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := make(chan said, 1)
		l := Listen(&impatient{left: 3}, "k", func(err error, fromStore bool) { heard <- said{err, fromStore} })
		x := <-heard
		require.True(t, x.fromStore)
		var e *comm.Error
		require.ErrorAs(t, x.err, &e)
		require.Equal(t, 2, e.Peer)
		l.Close()

		begin := time.Now()
		mute := Listen(silent{}, "k", func(error, bool) { t.Error("heard") })
		mute.Tell(errors.New("enough"), 0)
		require.Equal(t, tellTime, time.Since(begin))
		mute.Close()
		idle := Listen(silent{}, "k", func(error, bool) { t.Error("heard") })
		idle.Close()
		require.Equal(t, tellTime, time.Since(begin))
	})
}

// silent is a store that never answers.
type silent struct{ rendezvous.Store }

func (silent) Get(ctx context.Context, _ string) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silent) Set(ctx context.Context, _ string, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}
