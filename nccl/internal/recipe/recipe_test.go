package recipe

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/nccl"
)

// device is memory that nobody looks at.
var device = comm.Device{Kind: comm.CUDA}

func buffer(addr uintptr, rows, cols, stride int) comm.Buffer {
	return comm.At(device, addr, dtype.F32, rows, cols, stride)
}

// A ragged all_gatherv is a broadcast for each rank that has rows. Rows with gaps go through the stage.
func TestGrouped(t *testing.T) {
	p := Recipe{Rank: 2, Ranks: 3}
	op := &comm.Op{Kind: comm.AllGatherV, Send: comm.Host([]int{2, 0, 3}), Parts: []comm.Part{{Src: buffer(0x1000, 3, 4, 8), Dst: buffer(0x9000, 5, 4, 4)}}}
	const rows = 3 * 4 * 4
	require.EqualValues(t, 256, p.Fill(op, 0x50000, 256))
	require.Equal(t, []nccl.RowCopy{{Dst: 0x50000, DstPitch: 16, Src: 0x1000, SrcPitch: 32, Width: 16, Rows: 3}}, p.Batch.Before)
	require.Equal(t, []nccl.Call{
		{Kind: nccl.Broadcast, Type: nccl.Uint8, Src: 0x9000, Dst: 0x9000, Count: 32, Peer: 0},
		{Kind: nccl.Broadcast, Type: nccl.Uint8, Src: 0x50000, Dst: 0x9000 + 32, Count: rows, Peer: 2}}, p.Batch.Calls)
	require.Empty(t, p.Batch.After)
	require.EqualValues(t, 2*rows, p.SentBytes(op))
}

// Each way calls as many functions as its description says, and needs the stage that it uses.
func TestWays(t *testing.T) {
	gather := &comm.Op{Kind: comm.AllGatherV, Send: comm.Host([]int{2, 0, 3}), Parts: []comm.Part{{Src: buffer(0x1000, 2, 4, 4), Dst: buffer(0x9000, 5, 4, 4)}}}
	scatter := &comm.Op{Kind: comm.ReduceScatterV, Send: comm.Host([]int{2, 0, 3}), Parts: []comm.Part{{Src: buffer(0x1000, 5, 4, 4), Dst: buffer(0x9000, 2, 4, 4)}}}
	equal := &comm.Op{Kind: comm.AllGatherV, Send: comm.Host([]int{2, 2, 2}), Parts: []comm.Part{{Src: buffer(0x1000, 2, 4, 4), Dst: buffer(0x9000, 6, 4, 4)}}}
	for _, x := range []struct {
		way                  Ragged
		op                   *comm.Op
		before, calls, after int
		needed               uint64
		kind                 nccl.Kind
	}{
		{Grouped, gather, 0, 2, 0, 0, nccl.Broadcast}, {Padded, gather, 1, 1, 2, 512, nccl.AllGather}, {Messages, gather, 1, 3, 0, 0, nccl.Send},
		{Grouped, scatter, 0, 2, 0, 0, nccl.Reduce}, {Padded, scatter, 2, 1, 1, 512, nccl.ReduceScatter}, {Messages, scatter, 0, 2, 0, 0, nccl.Reduce},
		{Grouped, equal, 0, 1, 0, 0, nccl.AllGather}, {Padded, equal, 0, 1, 0, 0, nccl.AllGather}, {Messages, equal, 0, 1, 0, 0, nccl.AllGather},
	} {
		p := Recipe{Rank: 0, Ranks: 3, Ragged: x.way}
		require.Equal(t, x.needed, p.Fill(x.op, 0x50000, 1<<20), "%v way %d", x.op, x.way)
		require.Equal(t, [3]int{x.before, x.calls, x.after}, [3]int{len(p.Batch.Before), len(p.Batch.Calls), len(p.Batch.After)}, "%v way %d", x.op, x.way)
		require.Equal(t, x.kind, p.Batch.Calls[0].Kind, "%v way %d", x.op, x.way)
	}
}

// A barrier adds up one word, and counts on the device are refused.
func TestBarrier(t *testing.T) {
	p := Recipe{Ranks: 2, Word: 0x40}
	require.Zero(t, p.Fill(&comm.Op{Kind: comm.Barrier}, 0, 0))
	require.Equal(t, []nccl.Call{{Kind: nccl.AllReduce, Type: nccl.Int32, Src: 0x40, Dst: 0x40, Count: 1}}, p.Batch.Calls)
	own := buffer(0x100, 1, 1, 1)
	require.ErrorContains(t, Possible(&comm.Op{Kind: comm.AllGatherV, Send: comm.OnDevice(own, own, 4)}), "NCCL takes them from the host")
	require.NoError(t, Possible(&comm.Op{Kind: comm.AllToAllV, Send: comm.Host(nil), Recv: comm.Host(nil)}))
}
