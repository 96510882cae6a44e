package gpurank

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/nccl/nccltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What is kept does not change with what was the caller's, and keeping again allocates nothing.
func TestKept(t *testing.T) {
	counts, parts := []int{1, 2}, []comm.Part{{Src: comm.Of(make([]float32, 6), 3), Dst: comm.Of(make([]float32, 9), 3)}}
	op := comm.Op{Kind: comm.AllGatherV, Seq: 7, Send: comm.Host(counts), Parts: parts}
	var k Kept
	k.Keep(&op)
	counts[0], parts[0] = 99, comm.Part{}
	require.Equal(t, "all_gatherv #7", k.Label())
	require.Equal(t, "all_gatherv #7 f32[2, 3] counts [1 2]", k.String())
	before, _ := k.Counts()
	require.Equal(t, []int{1, 2}, before)
	require.Equal(t, comm.AllGatherV, k.Kind())
	require.Zero(t, testing.AllocsPerRun(10, func() { k.Keep(&op) }))
	k.Keep(&comm.Op{Kind: comm.AllToAllV, Send: comm.OnDevice(comm.Buffer{}, comm.Buffer{}, 1)})
	send, recv := k.Counts()
	require.Nil(t, send, "not those of the operation before")
	require.Nil(t, recv)
}

func TestCodeOf(t *testing.T) {
	for err, want := range map[error]comm.Code{
		context.DeadlineExceeded: comm.Timeout, context.Canceled: comm.Aborted, errors.New("other"): comm.Internal,
		fmt.Errorf("x: %w", comm.Unavailable): comm.Unavailable, fmt.Errorf("%w: %w", context.Canceled, comm.Remote): comm.Remote,
	} {
		require.Equal(t, want, CodeOf(err), "%v", err)
	}
	require.EqualError(t, Fail("copy", 3, errors.New("no")), "copy: rank 3: internal: no")
}

// queue moves with the driver's copies, and counts.
type queue struct{ moves, drains int }

func (q *queue) Move(st *cuda.Stream, dst, src comm.Buffer) error {
	q.moves++
	size := dst.DType().Size()
	for i := range dst.Rows() {
		if err := st.Copy(dst.Addr()+uintptr(i*dst.Stride()*size), src.Addr()+uintptr(i*src.Stride()*size), dst.Cols()*size); err != nil {
			return err
		}
	}
	return nil
}

func (q *queue) Drain(st *cuda.Stream) error {
	q.drains++
	return st.Wait(context.Background())
}

// Copies up, across the device and down keep every element, with gaps, and in pieces when rows or all of them exceed the
// pinned memory. Streams that the caller made are used in the order of the calls. It runs over a stand-in of libcuda.
func TestMemory(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	d, err := cuda.Open(0)
	require.NoError(t, err)
	s := Streams{Shared: true}
	require.NoError(t, s.Open(d))
	m := Memory{Rank: 5, Device: comm.Device{Kind: comm.CUDA}, Streams: &s}
	require.NoError(t, m.Open(d))
	other, err := d.NewStream(0)
	require.NoError(t, err)
	for _, x := range []struct{ rows, cols, gap, moves int }{{3, 5, 2, 3}, {3000, 129, 7, 5}, {2, pinnedBytes/4 + 3, 1, 9}} {
		size := x.rows * (x.cols + x.gap)
		host, back := make([]float32, size), make([]float32, size)
		for i := range host {
			host[i] = float32(i)
		}
		var addr [2]uintptr
		var on [2]comm.Buffer
		for i := range addr {
			addr[i], err = d.Alloc(4 * size)
			require.NoError(t, err)
			on[i] = comm.At(m.Device, addr[i], dtype.F32, x.rows, x.cols, x.cols+x.gap)
		}
		rows := func(all []float32) comm.Buffer { return comm.Of(all, x.cols+x.gap).Columns(0, x.cols) }
		q := &queue{}
		require.NoError(t, m.Copy(q, comm.Stream{Handle: other.Handle()}, on[0], rows(host)))
		require.NoError(t, m.Copy(q, comm.Stream{}, on[1], on[0]))
		require.NoError(t, m.Copy(q, comm.Stream{Handle: other.Handle()}, rows(back), on[1]))
		require.Equal(t, x.moves, q.moves, "%+v", x)
		for i := range back {
			if i%(x.cols+x.gap) < x.cols {
				require.Equal(t, host[i], back[i])
			} else {
				require.Zero(t, back[i], "a gap")
			}
		}
		require.NoError(t, errors.Join(d.Free(addr[0]), d.Free(addr[1])))
	}
	far := comm.At(comm.Device{Kind: comm.CUDA, Index: 1}, 4096, dtype.F32, 1, 1, 1)
	require.ErrorContains(t, m.Copy(nil, comm.Stream{}, far, comm.Of(make([]float32, 1), 1)), "is not on this rank's device cuda:0")
	near := comm.At(m.Device, 4096, dtype.F32, 1, 1, 1)
	require.ErrorContains(t, m.Copy(nil, comm.Stream{Handle: 1}, near, near), "the default streams")
	require.NoError(t, errors.Join(m.Close(), s.Close(), other.Close(), d.Close()))
}

// Sizes are rounded up by little, and what is given back is handed out again.
func TestClass(t *testing.T) {
	for bytes, want := range map[int]int{0: 256, 1: 256, 257: 512, 4096: 4096, 4097: 4608, 1<<20 + 1: 1<<20 + 1<<17} {
		require.Equal(t, want, class(bytes), "%d bytes", bytes)
	}
	for n := 1; n < 1<<22; n += 997 {
		require.GreaterOrEqual(t, class(n), n)
		require.LessOrEqual(t, class(n), max(256, n+n/8+256))
		require.Zero(t, class(n)%256)
	}
}
