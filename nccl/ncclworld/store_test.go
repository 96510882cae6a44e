package ncclworld

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
)

// The store numbers processes; the error blames a rank where that can be known.
func TestLostStore(t *testing.T) {
	lost := &comm.Error{Op: "store", Rank: 0, Peer: 2, Code: comm.Remote, Err: errors.New("gone")}
	for _, x := range []struct{ first, local, size, peer int }{{0, 1, 4, 2}, {2, 2, 8, 4}, {0, 4, 8, comm.NoPeer}, {1, 2, 8, comm.NoPeer}} {
		w := &world{cfg: Config{First: x.first, Size: x.size}, ranks: make([]*rank, x.local)}
		var e *comm.Error
		require.ErrorAs(t, w.lostStore(lost), &e)
		require.Equal(t, x.peer, e.Peer, "%+v", x)
		require.ErrorIs(t, e, comm.Remote)
	}
}
