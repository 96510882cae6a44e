package p2p

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/internal/kernels"
)

// forgetful is a store that can forget, and says what.
type forgetful struct {
	rendezvous.Store
	forgotten []string
}

func (f *forgetful) Forget(_ context.Context, key string) error {
	f.forgotten = append(f.forgotten, key)
	return nil
}

// TestReleasedForgotten releases memory in three processes, stood for by three worlds, in every order: its count goes when
// all have seen that all released, or when they close.
func TestReleasedForgotten(t *testing.T) {
	for last := range 3 {
		for _, closes := range []bool{false, true} {
			store := &forgetful{Store: rendezvous.NewMemory()}
			var list []*symmetric
			for range 3 {
				w := &world{cfg: Config{Store: store}, dead: make(chan struct{}), span: &span{}}
				w.numOpen.Store(1)
				s := &symmetric{g: &group{w: w, shared: kernels.Foreign, local: 2, members: make([]*rank, 6)}, key: "count"}
				s.num.Store(2)
				list = append(list, s)
			}
			for i := range list {
				s := list[(last+1+i)%3]
				require.NoError(t, s.release(t.Context()))
				require.NoError(t, s.release(t.Context()))
				s.g.w.reclaim(t.Context())
				require.Len(t, s.g.w.span.retired, map[bool]int{true: 1, false: 0}[i < 2])
			}
			require.Empty(t, store.forgotten, "others look at it still")
			if closes {
				for _, s := range list {
					require.NoError(t, s.g.w.forgetRetired(t.Context()))
				}
				require.Equal(t, []string{"count", "count"}, store.forgotten)
				continue
			}
			for _, s := range list {
				s.g.w.reclaim(t.Context())
				require.Empty(t, s.g.w.span.retired)
			}
			require.Equal(t, []string{"count"}, store.forgotten)
		}
	}
}
