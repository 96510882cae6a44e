package p2p

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
)

// ownBytes is the memory of one rank in TestCallersPointers.
const ownBytes = 96 << 10

// place is where a tensor lies in a rank's memory: any element-aligned address, any row stride.
type place struct{ at, rows, cols, stride int }

// layout is one call: where each rank has its source and its destination.
type layout struct {
	kind     comm.OpKind
	reduce   comm.ReduceOp
	typ      dtype.DType
	root     int
	counts   []int
	src, dst []place // by rank
}

func (x *layout) String() string {
	return fmt.Sprintf("%v %v %v root %d counts %v src %+v dst %+v", x.kind, x.reduce, x.typ, x.root, x.counts, x.src, x.dst)
}

var ownKinds = []comm.OpKind{comm.AllReduce, comm.AllGather, comm.AllGatherV, comm.ReduceScatter, comm.ReduceScatterV, comm.AllToAllV,
	comm.Broadcast, comm.Reduce}

func drawLayout(rng *rand.Rand, ranks int) *layout {
	x := &layout{kind: ownKinds[rng.IntN(len(ownKinds))], reduce: []comm.ReduceOp{comm.Sum, comm.Max, comm.Min}[rng.IntN(3)],
		typ: dtype.All()[rng.IntN(len(dtype.All()))], root: rng.IntN(ranks)}
	cols, rows := 1+rng.IntN(70), rng.IntN(7)
	for range ranks {
		x.counts = append(x.counts, rng.IntN(7))
	}
	total := 0
	for _, n := range x.counts {
		total += n
	}
	half := ownBytes / 2
	draw := func(first, rows int) place {
		stride := cols + rng.IntN(3)*rng.IntN(20)
		return place{first + x.typ.Size()*rng.IntN(40), rows, cols, stride}
	}
	for r := range ranks {
		in, out := rows, rows
		switch x.kind {
		case comm.AllGather:
			out = rows * ranks
		case comm.ReduceScatter:
			in = rows * ranks
		case comm.AllGatherV:
			in, out = x.counts[r], total
		case comm.ReduceScatterV:
			in, out = total, x.counts[r]
		case comm.AllToAllV:
			in, out = total, ranks*x.counts[r]
		}
		x.src, x.dst = append(x.src, draw(0, in)), append(x.dst, draw(half, out))
	}
	return x
}

// do makes the call with a rank's memory, which view gives.
func (x *layout) do(c *comm.Comm, s comm.Stream, view func(place) comm.Buffer) error {
	src, dst := view(x.src[c.Rank()]), view(x.dst[c.Rank()])
	part := comm.Part{Dst: dst, Src: src}
	switch x.kind {
	case comm.AllReduce:
		return c.AllReduce(s, dst, src, x.reduce)
	case comm.AllGather:
		return c.AllGather(s, dst, src)
	case comm.ReduceScatter:
		return c.ReduceScatter(s, dst, src, x.reduce)
	case comm.AllGatherV:
		return c.AllGatherV(s, comm.Host(x.counts), part)
	case comm.ReduceScatterV:
		return c.ReduceScatterV(s, comm.Host(x.counts), x.reduce, part)
	case comm.Broadcast:
		return c.Broadcast(s, src, x.root)
	case comm.Reduce:
		return c.Reduce(s, dst, src, x.reduce, x.root)
	}
	recv := make([]int, c.Size())
	for i := range recv {
		recv[i] = x.counts[c.Rank()]
	}
	return c.AllToAllV(s, comm.Host(x.counts), comm.Host(recv), part)
}

// fill makes a rank's memory: small whole numbers of the type, whose sums are exact and never NaN.
func (x *layout) fill(rng *rand.Rand) []byte {
	memory := make([]byte, ownBytes)
	n := ownBytes / x.typ.Size()
	if !x.typ.IsFloat() {
		for i := range n {
			memory[i*x.typ.Size()] = byte(rng.IntN(5))
		}
		return memory
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rng.IntN(5) - 2)
	}
	if err := dtype.FromFloat32s(memory, v, x.typ); err != nil {
		panic(err)
	}
	return memory
}

// TestCallersPointers runs random calls on memory that weft did not allocate, at every alignment of elements and rows, on the
// callers' streams, and compares all of that memory with what the CPU driver leaves in the same places.
func TestCallersPointers(t *testing.T) { callersPointers(t, 4, 400, 10*time.Second, func() {}) }

// callersPointers calls meet between filling memory and the call, and after it; nothing needs that where ranks run at full speed.
func callersPointers(t *testing.T, ranks, rounds int, timeout time.Duration, meet func()) {
	d := device(t)
	memory := make([]uintptr, ranks)
	for i := range memory {
		var err error
		memory[i], err = d.Alloc(ownBytes)
		require.NoError(t, err)
	}
	rng := rand.New(rand.NewPCG(6, 1))
	layouts := make([]*layout, rounds)
	for i := range layouts {
		layouts[i] = drawLayout(rng, ranks)
	}
	want := make([][]byte, rounds*ranks) // all memory of a rank after each call
	cpu, err := local.Open(local.Config{Ranks: ranks})
	require.NoError(t, err)
	commtest.Run(t, cpu, func(_ context.Context, tb testing.TB, c *comm.Comm) {
		for i, x := range layouts {
			mine := x.fill(rand.New(rand.NewPCG(uint64(i), uint64(c.Rank()))))
			require.NoError(tb, x.do(c, comm.Stream{}, func(p place) comm.Buffer {
				return comm.OfBytes(mine[p.at:], x.typ, p.rows, p.stride).Columns(0, p.cols)
			}), x)
			want[i*ranks+c.Rank()] = mine
		}
	})
	t.Run("calls", func(t *testing.T) {
		commtest.Run(t, openWorld(t, ranks, timeout), func(ctx context.Context, tb testing.TB, c *comm.Comm) {
			st, err := d.NewStream(0)
			require.NoError(tb, err)
			s, base := comm.Stream{Handle: st.Handle()}, memory[c.Rank()]
			got := make([]byte, ownBytes)
			for i, x := range layouts {
				upload(tb, ctx, c, st, base, x.fill(rand.New(rand.NewPCG(uint64(i), uint64(c.Rank())))), meet)
				require.NoError(tb, x.do(c, s, func(p place) comm.Buffer {
					return comm.At(c.Device(), base+uintptr(p.at), x.typ, p.rows, p.cols, p.stride)
				}), x)
				require.NoError(tb, c.Wait(ctx, s), x)
				meet()
				require.NoError(tb, comm.Copy(c, s, comm.OfBytes(got, dtype.U8, 1, ownBytes), comm.At(c.Device(), base, dtype.U8, 1, ownBytes, ownBytes)))
				require.NoError(tb, c.Wait(ctx, s))
				if at := difference(want[i*ranks+c.Rank()], got); at >= 0 {
					tb.Fatalf("call %d, byte %d: %v", i, at, x)
				}
			}
			require.NoError(tb, st.Close())
		})
	})
	for _, addr := range memory {
		require.NoError(t, d.Free(addr))
	}
}

// upload fills device memory and lets all ranks come, so that none writes to a peer's memory before it is filled.
func upload(tb testing.TB, ctx context.Context, c *comm.Comm, st *cuda.Stream, addr uintptr, memory []byte, meet func()) {
	s := comm.Stream{Handle: st.Handle()}
	require.NoError(tb, comm.Copy(c, s, comm.At(c.Device(), addr, dtype.U8, 1, len(memory), len(memory)), comm.OfBytes(memory, dtype.U8, 1, len(memory))))
	require.NoError(tb, c.Wait(ctx, s))
	meet()
	require.NoError(tb, c.Barrier(s))
	require.NoError(tb, c.Wait(ctx, s))
}

func difference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// TestAddressesOfNoElement refuses an address or a row stride that no element of the type has, before a kernel sees it.
func TestAddressesOfNoElement(t *testing.T) {
	w := openWorld(t, 1, 10*time.Second)
	c := w.Local()[0]
	x := must(t, c, dtype.F32, 4, 16)
	odd := comm.At(c.Device(), x.Addr()+2, dtype.F32, 1, 8, 8)
	err := c.AllReduce(comm.Stream{}, odd, odd, comm.Sum)
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorContains(t, err, "aligned")
	require.NoError(t, c.AllReduce(comm.Stream{}, x, x, comm.Sum))
	require.NoError(t, c.Wait(t.Context(), comm.Stream{}))
}

// TestDefaultStream refuses CUDA's default streams where ranks share a GPU: their work waits for that of all other streams.
func TestDefaultStream(t *testing.T) {
	w := openWorld(t, 2, 10*time.Second)
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		for handle := range uintptr(2) {
			err := c.Barrier(comm.Stream{Handle: handle + 1})
			require.ErrorIs(tb, err, comm.Invalid)
			require.ErrorContains(tb, err, "cudaStreamNonBlocking")
		}
		require.NoError(tb, c.Barrier(comm.Stream{}))
		require.NoError(tb, c.Wait(ctx, comm.Stream{}))
	})
}
