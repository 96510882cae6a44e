package notes

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
)

func reduction(rows int) *comm.Op {
	b := comm.Of(make([]float32, 8*rows), 8)
	return &comm.Op{Kind: comm.AllReduce, Parts: []comm.Part{{Dst: b, Src: b}}}
}

// A note differs from a call of its number with another signature alone.
func TestDiffers(t *testing.T) {
	var n Note
	op := reduction(2)
	n.Write(7, op.Signature(), op, "")
	require.False(t, n.Differs(7, op.Signature()))
	require.True(t, n.Differs(7, reduction(3).Signature()))
	require.False(t, n.Differs(8, reduction(3).Signature()))
	require.Equal(t, "all_reduce #0 sum f32[2, 8]", n.String())
	_, _, ok := n.Rows(0)
	require.False(t, ok)
	n.Write(8, Hash("split"), nil, "split")
	require.Equal(t, "split", n.String())
	require.NotEqual(t, Hash("split"), Hash("splat"))
	op = &comm.Op{Kind: comm.AllToAllV, Send: comm.Host([]int{1, 2}), Recv: comm.Host([]int{3, 4})}
	n.Write(9, op.Signature(), op, "")
	send, recv, ok := n.Rows(1)
	require.Equal(t, [3]any{2, 4, true}, [3]any{send, recv, ok})
	_, _, ok = n.Rows(2)
	require.False(t, ok)
}

// Of two members that call different things at once, at least one sees it.
func TestBothAtOnce(t *testing.T) {
	for call := uint64(1); call < 2000; call++ {
		var pair [2]Note
		var saw [2]bool
		var all sync.WaitGroup
		for i := range pair {
			all.Go(func() {
				op := reduction(i + 1)
				pair[i].Write(call, op.Signature(), op, "")
				saw[i] = pair[1-i].Differs(call, op.Signature())
			})
		}
		all.Wait()
		require.True(t, saw[0] || saw[1], "call %d", call)
	}
}
