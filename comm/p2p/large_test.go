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
	"github.com/weftgo/weft/dtype"
)

// TestLarge compares calls that are cut into chunks, and calls below that size, with the CPU driver's bytes: any
// alignment, narrow rows, gaps, skew, several tensors, in place. Whatever a result does not cover keeps its poison.
func TestLarge(t *testing.T) {
	device(t)
	sizes := []int{1, 2, 3, 7, 8}
	if testing.Short() {
		sizes = []int{8}
	}
	run := func(ranks int, delays string, apart bool, cases []largeCase) {
		t.Run(fmt.Sprintf("%d ranks, delays %s, apart %v", ranks, delays, apart), func(t *testing.T) {
			t.Setenv("WEFT_KERNEL_DELAYS", delays)
			twin, err := local.Open(local.Config{Ranks: ranks})
			require.NoError(t, err)
			w := openWorld(t, ranks, 20*time.Second)
			if apart { // each rank takes its own share, as on several GPUs
				w.Local()[0].Conn().(*conn).g.shared = 0
			}
			for _, x := range cases {
				want, got := make([][]byte, ranks), make([][]byte, ranks)
				commtest.Run(t, twin, func(ctx context.Context, tb testing.TB, c *comm.Comm) { want[c.Rank()] = x.bytes(ctx, tb, c) })
				commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) { got[c.Rank()] = x.bytes(ctx, tb, c) })
				for r := range want {
					if string(want[r]) != string(got[r]) {
						t.Errorf("%s, rank %d of %d: %s", x.name, r, ranks, firstDifference(want[r], got[r]))
					}
				}
			}
			require.NoError(t, twin.Close(context.Background()))
		})
	}
	run(8, "0", false, largestCases)
	run(4, "1", true, largeCases)
	for _, ranks := range sizes {
		run(ranks, "1", false, largeCases) // builds with delays cut small calls into chunks too
	}
}

// largestCases are cut into chunks in every build.
var largestCases = []largeCase{
	reduceAll(dtype.BF16, comm.Sum, 3000000, 0), reduceAll(dtype.BF16, comm.Sum, 3000000, 1), reduceAll(dtype.F32, comm.Max, 1500000, 0),
	ragged(comm.AllGatherV, dtype.BF16, 4096, 700, 0, 0, true), ragged(comm.ReduceScatterV, dtype.F16, 1, 3000000, 0, 0, false),
	ragged(comm.AllToAllV, dtype.BF16, 4096, 150, 0, 0, true), ragged(comm.AllToAllV, dtype.BF16, 3, 200000, 1, 0, false),
}

func firstDifference(want, got []byte) string {
	num, first := 0, -1
	for i := range want {
		if want[i] != got[i] {
			if num++; first < 0 {
				first = i
			}
		}
	}
	return fmt.Sprintf("%d of %d bytes differ, the first at %d: got %#x, want %#x", num, len(want), first, got[first], want[first])
}

// largeCase is a call on sources and destinations of a large.
type largeCase struct {
	name string
	run  func(x *large) error
	most bool // it needs largestBytes
}

// Bytes of each kind of memory of a case.
const (
	largeBytes   = 3 << 20
	largestBytes = 14 << 20
)

// large is one rank's memory for a case: sources of finite numbers whatever their type, and poisoned destinations.
type large struct {
	testing.TB
	*comm.Comm
	memory     [2]comm.Buffer // sources, destinations
	used       [2]int
	rng        *rand.Rand // alike on all ranks
	rank, size int
}

func (y largeCase) bytes(ctx context.Context, tb testing.TB, c *comm.Comm) []byte {
	x := &large{TB: tb, Comm: c, rank: c.Rank(), size: c.Size(), rng: rand.New(rand.NewPCG(7, 8))}
	own := rand.New(rand.NewPCG(9, uint64(c.Rank())))
	size := largeBytes
	if y.most {
		size = largestBytes
	}
	host := [2][]byte{make([]byte, size), make([]byte, size)}
	for i := 0; i < size; i += 8 {
		r := own.Uint64()
		for k := 0; k < 8; k += 2 { // 16-bit numbers between 2^-7 and 2^1, with signs
			host[0][i+k] = byte(r>>(8*k)) & 0x77
			host[0][i+k+1] = byte(r>>(8*k+8))&0x83 | 0x3c
		}
	}
	for i := range host[1] {
		host[1][i] = 0xff
	}
	for i := range x.memory {
		x.memory[i] = must(tb, c, dtype.U8, 1, size)
		require.NoError(tb, comm.Copy(c, comm.Stream{}, x.memory[i], comm.OfBytes(host[i], dtype.U8, 1, size)))
	}
	require.NoError(tb, y.run(x), y.name)
	require.NoError(tb, c.Wait(ctx, comm.Stream{}), y.name)
	for i := range x.memory { // results in place are among the sources
		require.NoError(tb, comm.Copy(c, comm.Stream{}, comm.OfBytes(host[i], dtype.U8, 1, size), x.memory[i]))
		require.NoError(tb, comm.Free(c, x.memory[i]))
	}
	n := min(size, max(x.used[0], x.used[1])+256)
	return append(host[1][:n:n], host[0][:n]...)
}

// at returns memory of one kind (0: sources) that begins off elements after an aligned address, with gap elements after each
// row.
func (x *large) at(kind int, t dtype.DType, rows, cols, off, gap int) comm.Buffer {
	size := t.Size()
	x.used[kind] = (x.used[kind]+255)/256*256 + off*size
	b := x.memory[kind]
	bytes := rows * (cols + gap) * size
	require.LessOrEqual(x, x.used[kind]+bytes, b.Cols())
	if b.Device().Kind == comm.CPU {
		b = comm.OfBytes(b.Bytes()[x.used[kind]:x.used[kind]+bytes], t, rows, cols+gap).Columns(0, cols)
	} else {
		b = comm.At(b.Device(), b.Addr()+uintptr(x.used[kind]), t, rows, cols, cols+gap)
	}
	x.used[kind] += bytes
	return b
}

// share returns rows of every rank that add up to about total; some are zero, and skew gives half to one rank.
func (x *large) share(total int, skew bool) (n []int, sum int) {
	n = make([]int, x.size)
	for i := range n {
		n[i] = x.rng.IntN(2*total/x.size + 1)
		if skew {
			n[i] /= 2
		}
	}
	n[x.rng.IntN(x.size)] = 0
	if skew {
		n[x.size/2] = total / 2
	}
	for _, v := range n {
		sum += v
	}
	return n, sum
}

func reduceAll(t dtype.DType, op comm.ReduceOp, n, off int) largeCase {
	return largeCase{fmt.Sprintf("all_reduce %v %v of %d, off %d", op, t, n, off), func(x *large) error {
		src, dst := x.at(0, t, 1, n, off, 0), x.at(1, t, 1, n, 0, 0)
		return x.AllReduce(comm.Stream{}, dst, src, op)
	}, n*t.Size() > 4<<20}
}

func ragged(kind comm.OpKind, t dtype.DType, cols, total, off, gap int, skew bool) largeCase {
	return largeCase{fmt.Sprintf("%v %v of %d x %d, off %d, gap %d, skew %v", kind, t, total, cols, off, gap, skew), func(x *large) error {
		n, sum := x.share(total, skew)
		own := n[x.rank]
		switch kind {
		case comm.AllGatherV:
			return x.AllGatherV(comm.Stream{}, comm.Host(n), comm.Part{Dst: x.at(1, t, sum, cols, 0, gap), Src: x.at(0, t, own, cols, off, 0)})
		case comm.ReduceScatterV:
			return x.ReduceScatterV(comm.Stream{}, comm.Host(n), comm.Sum, comm.Part{Dst: x.at(1, t, own, cols, off, 0), Src: x.at(0, t, sum, cols, 0, gap)})
		default:
			return x.exchange(t, cols, n, off, gap)
		}
	}, total*cols*t.Size() > 1<<20}
}

// exchange is an all-to-all in which rank j receives about n[j] rows.
func (x *large) exchange(t dtype.DType, cols int, n []int, off, gap int) error {
	send, recv, sent, got := make([]int, x.size), make([]int, x.size), 0, 0
	for j := range x.size {
		for i := range x.size {
			rows := x.rng.IntN(2*n[j]/x.size + 1)
			if i == x.rank {
				send[j] = rows
				sent += rows
			}
			if j == x.rank {
				recv[i] = rows
				got += rows
			}
		}
	}
	part := comm.Part{Dst: x.at(1, t, got, cols, off, gap), Src: x.at(0, t, sent, cols, 0, 0)}
	return x.AllToAllV(comm.Stream{}, comm.Host(send), comm.Host(recv), part)
}

var largeCases = func() (list []largeCase) {
	for _, n := range []int{300000, 300001, 300005, 30000} { // above and below what is cut
		for _, off := range []int{0, 1, 8} {
			list = append(list, reduceAll(dtype.BF16, comm.Sum, n, off))
		}
	}
	for _, op := range []comm.ReduceOp{comm.Sum, comm.Prod, comm.Min, comm.Max, comm.Avg} {
		list = append(list, reduceAll(dtype.F32, op, 100000, 0), reduceAll(dtype.F16, op, 170001, 0), reduceAll(dtype.BF16, op, 20000, 0))
		if op != comm.Avg {
			list = append(list, reduceAll(dtype.I32, op, 70003, 0), reduceAll(dtype.I64, op, 30000, 0), reduceAll(dtype.I8, op, 300000, 0))
		}
	}
	list = append(list, reduceAll(dtype.F8E4M3, comm.Sum, 300001, 0), reduceAll(dtype.F8E5M2, comm.Max, 300000, 0))
	for _, kind := range []comm.OpKind{comm.AllGatherV, comm.ReduceScatterV, comm.AllToAllV} {
		for _, skew := range []bool{false, true} {
			list = append(list,
				ragged(kind, dtype.BF16, 4096, 64, 0, 0, skew), ragged(kind, dtype.BF16, 1, 300000, 0, 0, skew),
				ragged(kind, dtype.F32, 3, 50000, 1, 0, skew), ragged(kind, dtype.BF16, 72, 4000, 0, 8, skew),
				ragged(kind, dtype.BF16, 1, 3000, 0, 0, skew))
		}
	}
	return append(list, largeCase{name: "all_reduce in place", run: func(x *large) error {
		b := x.at(0, dtype.BF16, 80, 2048, 0, 0)
		return x.AllReduce(comm.Stream{}, b, b, comm.Sum)
	}}, largeCase{name: "all_gatherv in place", run: func(x *large) error {
		n, sum := x.share(80, true)
		all, first := x.at(0, dtype.BF16, sum, 2048, 0, 0), 0
		for _, v := range n[:x.rank] {
			first += v
		}
		return x.AllGatherV(comm.Stream{}, comm.Host(n), comm.Part{Dst: all, Src: all.Slice(first, first+n[x.rank])})
	}}, largeCase{name: "reduce_scatterv in place", run: func(x *large) error {
		n, sum := x.share(80, true)
		all, first := x.at(0, dtype.F32, sum, 2048, 0, 0), 0
		for _, v := range n[:x.rank] {
			first += v
		}
		return x.ReduceScatterV(comm.Stream{}, comm.Host(n), comm.Sum, comm.Part{Dst: all.Slice(first, first+n[x.rank]), Src: all})
	}}, largeCase{name: "broadcast", run: func(x *large) error {
		return x.Broadcast(comm.Stream{}, x.at(0, dtype.I8, 1, 800001, 0, 0), x.size-1)
	}}, largeCase{name: "reduce", run: func(x *large) error {
		dst := comm.Buffer{}
		if x.rank == 0 {
			dst = x.at(1, dtype.F16, 1, 200000, 0, 0)
		}
		return x.Reduce(comm.Stream{}, dst, x.at(0, dtype.F16, 1, 200000, 0, 0), comm.Sum, 0)
	}}, largeCase{name: "all_gatherv of three tensors", run: func(x *large) error {
		n, sum := x.share(500, false)
		part := func(t dtype.DType, cols int) comm.Part {
			return comm.Part{Dst: x.at(1, t, sum, cols, 0, 0), Src: x.at(0, t, n[x.rank], cols, 0, 0)}
		}
		return x.AllGatherV(comm.Stream{}, comm.Host(n), part(dtype.BF16, 256), part(dtype.I32, 8), part(dtype.F32, 128))
	}}, largeCase{name: "reduce_scatterv of two tensors", run: func(x *large) error {
		n, sum := x.share(500, true)
		part := func(t dtype.DType, cols int) comm.Part {
			return comm.Part{Dst: x.at(1, t, n[x.rank], cols, 0, 0), Src: x.at(0, t, sum, cols, 0, 0)}
		}
		return x.ReduceScatterV(comm.Stream{}, comm.Host(n), comm.Sum, part(dtype.BF16, 256), part(dtype.BF16, 512))
	}}, largeCase{name: "alltoallv of two types", run: func(x *large) error {
		n := 400 / x.size
		send := make([]int, x.size)
		for i := range send {
			send[i] = n
		}
		part := func(t dtype.DType, cols int) comm.Part {
			return comm.Part{Dst: x.at(1, t, n*x.size, cols, 0, 0), Src: x.at(0, t, n*x.size, cols, 0, 0)}
		}
		return x.AllToAllV(comm.Stream{}, comm.Host(send), comm.Host(send), part(dtype.BF16, 512), part(dtype.U8, 7))
	}})
}()

// TestLargeCases runs the cases on the CPU driver, twice: they fit their memory, change it, and are deterministic.
func TestLargeCases(t *testing.T) {
	w, err := local.Open(local.Config{Ranks: 3})
	require.NoError(t, err)
	var seen [2]map[string]string
	for i := range seen {
		seen[i] = map[string]string{}
		for _, x := range largeCases[len(largeCases)-12:] {
			commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
				if b := x.bytes(ctx, tb, c); c.Rank() == 1 {
					seen[i][x.name] = string(b)
				}
			})
		}
	}
	require.True(t, fmt.Sprint(len(seen[0])) == "12" && seen[0]["broadcast"] == seen[1]["broadcast"])
	for name, b := range seen[0] {
		require.True(t, b == seen[1][name], name)
	}
	require.NoError(t, w.Close(context.Background()))
}
