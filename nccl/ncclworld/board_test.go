package ncclworld

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
)

// board is a group of local members without a library.
func board(size int) []*conn {
	w := &world{cfg: Config{Size: size, Devices: make([]comm.Device, size), Timeout: time.Second}}
	w.life, w.end = context.WithCancelCause(context.Background())
	members := make([]int, size)
	for i := range members {
		members[i] = i
	}
	g := newGroup(w, members)
	conns := make([]*conn, size)
	for i := range conns {
		conns[i] = g.join(&rank{w: w, index: i}, i, nil)
	}
	return conns
}

func reduction(rows int) *comm.Op {
	b := comm.Of(make([]float32, 8*rows), 8)
	return &comm.Op{Kind: comm.AllReduce, Parts: []comm.Part{{Dst: b, Src: b}}}
}

// Members that call the same agree; who is behind is missing; notes of calls long ago are not compared.
func TestBoard(t *testing.T) {
	conns := board(3)
	op := reduction(2)
	for i := range 3 * numNotes {
		for _, c := range conns {
			require.NoError(t, c.agree(op, ""), "call %d", i)
		}
	}
	require.Empty(t, conns[0].missing())
	for range numNotes + 5 { // so far ahead that its notes of the first calls are gone
		require.NoError(t, conns[0].agree(op, ""))
	}
	require.Equal(t, []int{1, 2}, conns[0].missing())
	require.NoError(t, conns[1].agree(reduction(3), ""), "not compared")
	require.Nil(t, conns[1].g.compare(1))
}

// compare names the first two that differ, and pairs of an alltoallv.
func TestCompare(t *testing.T) {
	conns := board(3)
	for i, rows := range []int{2, 2, 4} {
		conns[i].calls.Store(1)
		conns[i].notes[1].Write(1, reduction(rows).Signature(), reduction(rows), "")
	}
	v := conns[1].g.compare(1)
	require.Equal(t, [2]int{0, 2}, [2]int{v.a, v.b})
	require.Equal(t, "ranks disagree: rank 0 calls all_reduce #0 sum f32[2, 8], rank 2 calls all_reduce #0 sum f32[4, 8]", v.text)
	for i, counts := range [][2][]int{{{0, 1, 2}, {0, 3, 0}}, {{3, 0, 0}, {1, 0, 0}}, {{0, 0, 0}, {9, 0, 0}}} {
		op := reduction(9)
		op.Kind, op.Send, op.Recv = comm.AllToAllV, comm.Host(counts[0]), comm.Host(counts[1])
		conns[i].notes[2].Write(2, op.Signature(), op, "")
	}
	require.Equal(t, "rank 0 sends 2 rows to rank 2, which expects 9", conns[0].g.compare(2).text)
}

// What comparing costs a call among eight local ranks.
func BenchmarkAgree(b *testing.B) {
	conns := board(8)
	op := reduction(2)
	b.ReportAllocs()
	for b.Loop() {
		if err := conns[0].agree(op, ""); err != nil {
			b.Fatal(err)
		}
	}
}
