package p2p

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
)

// TestDelays runs mixed collectives in kernels that spin a random time before their stores of data and of flags, and compares
// every result with the CPU driver's. Operations follow each other without a wait, results become inputs, and inputs are
// overwritten as soon as their operation has ended: a missing order shows as a wrong number.
func TestDelays(t *testing.T) {
	device(t)
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	const ranks = 8
	twin, err := local.Open(local.Config{Ranks: ranks})
	require.NoError(t, err)
	want := make([][][]byte, ranks)
	commtest.Run(t, twin, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		want[c.Rank()] = mixed(ctx, tb, c, rounds)
	})
	require.NoError(t, twin.Close(context.Background()))
	for _, v := range []string{"0", "1"} {
		t.Run("WEFT_KERNEL_DELAYS="+v, func(t *testing.T) {
			t.Setenv("WEFT_KERNEL_DELAYS", v)
			w := openWorld(t, ranks, 20*time.Second)
			commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
				got := mixed(ctx, tb, c, rounds)
				for i := range got {
					require.Equal(tb, want[c.Rank()][i], got[i], "results of rounds %d to %d", i*batch, i*batch+batch-1)
				}
			})
		})
	}
}

// TestMixed holds that what TestDelays computes is the same twice and not all zero.
func TestMixed(t *testing.T) {
	run := func() (sum [][]byte) {
		w, err := local.Open(local.Config{Ranks: 3})
		require.NoError(t, err)
		commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
			if got := mixed(ctx, tb, c, 2*batch); c.Rank() == 1 {
				sum = got
			}
		})
		require.NoError(t, w.Close(context.Background()))
		return sum
	}
	first := run()
	require.Len(t, first, 2)
	require.NotEqual(t, make([]byte, len(first[0])), first[0])
	require.Equal(t, first, run())
}

// batch is the rounds between two looks at results.
const batch = 50

// mixer is one rank's buffers: sources of every kind, and a stack of results.
type mixer struct {
	testing.TB
	c            *comm.Comm
	ints, floats comm.Buffer // [rows, 33] and [1, floats]
	halves       comm.Buffer
	results      comm.Buffer // bytes
	used         int
}

const (
	intRows, intCols = 64, 33
	numFloats        = 40000
	resultBytes      = 8 << 20
)

func mixed(ctx context.Context, tb testing.TB, c *comm.Comm, rounds int) (all [][]byte) {
	m := &mixer{TB: tb, c: c, ints: must(tb, c, dtype.I32, intRows, intCols), floats: must(tb, c, dtype.F32, 1, numFloats),
		halves: must(tb, c, dtype.BF16, 1, 8192), results: must(tb, c, dtype.U8, 1, resultBytes)}
	own := rand.New(rand.NewPCG(3, uint64(c.Rank())))
	ints, floats, halves := make([]int32, intRows*intCols), make([]float32, numFloats), make([]dtype.BFloat16, 8192)
	for i := range ints {
		ints[i] = int32(own.Uint32())
	}
	for i := range floats {
		floats[i] = own.Float32()*4 - 2
	}
	for i := range halves {
		halves[i] = dtype.ToBFloat16(own.Float32()*4 - 2)
	}
	var s comm.Stream
	require.NoError(tb, comm.Copy(c, s, m.ints, comm.Of(ints, intCols)))
	require.NoError(tb, comm.Copy(c, s, m.floats, comm.Of(floats, numFloats)))
	require.NoError(tb, comm.Copy(c, s, m.halves, comm.Of(halves, 8192)))
	rng := rand.New(rand.NewPCG(4, 5)) // alike on all ranks
	for round := range rounds {
		m.round(rng)
		if own.IntN(25) == 0 {
			time.Sleep(time.Duration(own.IntN(200)) * time.Microsecond)
		}
		if round%batch == batch-1 {
			got := make([]byte, m.used)
			require.NoError(tb, c.Wait(ctx, s))
			require.NoError(tb, comm.Copy(c, s, comm.OfBytes(got, dtype.U8, 1, m.used), m.results.Columns(0, m.used)))
			all, m.used = append(all, got), 0
		}
	}
	return all
}

// result returns room for a result that is compared later.
func (m *mixer) result(t dtype.DType, rows, cols int) comm.Buffer {
	b := comm.Buffer{}
	if m.results.Device().Kind == comm.CPU {
		b = comm.OfBytes(m.results.Bytes()[m.used:m.used+rows*cols*t.Size()], t, rows, cols)
	} else {
		b = comm.At(m.c.Device(), m.results.Addr()+uintptr(m.used), t, rows, cols, cols)
	}
	m.used += (rows*cols*t.Size() + 255) / 256 * 256
	require.LessOrEqual(m, m.used, resultBytes)
	return b
}

// counts returns rows for every rank, intRows in all at most.
func (m *mixer) counts(rng *rand.Rand) (n []int, sum int) {
	n = make([]int, m.c.Size())
	for i := range n {
		n[i] = rng.IntN(intRows/len(n) + 1)
		sum += n[i]
	}
	return n, sum
}

// round is one operation, which all ranks choose alike.
func (m *mixer) round(rng *rand.Rand) {
	var s comm.Stream
	c, size, rank := m.c, m.c.Size(), m.c.Rank()
	ops := []comm.ReduceOp{comm.Sum, comm.Prod, comm.Min, comm.Max, comm.Avg}
	kind, op, root := rng.IntN(12), ops[rng.IntN(len(ops))], rng.IntN(size)
	switch kind {
	case 0, 1: // small
		n := 4 * (1 + rng.IntN(2048))
		require.NoError(m, c.AllReduce(s, m.result(dtype.BF16, 1, n), m.halves.Columns(0, n), comm.Sum))
	case 2:
		n := 1 + rng.IntN(numFloats)
		require.NoError(m, c.AllReduce(s, m.result(dtype.F32, 1, n), m.floats.Columns(0, n), op))
	case 3: // in place: the next round's input
		require.NoError(m, c.AllReduce(s, m.ints, m.ints, comm.Sum))
	case 4:
		n, sum := m.counts(rng)
		require.NoError(m, c.AllGatherV(s, comm.Host(n), comm.Part{Dst: m.result(dtype.I32, max(1, sum), intCols).Slice(0, sum), Src: m.ints.Slice(0, n[rank])}))
	case 5:
		n, sum := m.counts(rng)
		dst := m.result(dtype.I32, max(1, n[rank]), intCols).Slice(0, n[rank])
		require.NoError(m, c.ReduceScatterV(s, comm.Host(n), ops[rng.IntN(4)], comm.Part{Dst: dst, Src: m.ints.Slice(0, sum)}))
	case 6:
		m.exchange(rng)
	case 7:
		dst := m.result(dtype.F32, 1, 1000)
		require.NoError(m, comm.Copy(c, s, dst, m.floats.Columns(7*rank, 7*rank+1000)))
		require.NoError(m, c.Broadcast(s, dst, root))
	case 8:
		dst := m.result(dtype.BF16, 1, 3001)
		if rank != root {
			dst = comm.Buffer{}
		}
		require.NoError(m, c.Reduce(s, dst, m.halves.Columns(0, 3001), op, root))
	case 9:
		require.NoError(m, c.Barrier(s))
	case 10: // a ring of messages
		dst := m.result(dtype.F32, 1, 777)
		to, from := (rank+1)%size, (rank+size-1)%size
		send := func() { require.NoError(m, c.Send(s, m.floats.Columns(rank, rank+777), to)) }
		if rank == 0 {
			send()
		}
		require.NoError(m, c.Recv(s, dst, from))
		if rank != 0 {
			send()
		}
	default: // peers have read the source when their operation has ended
		dst := m.result(dtype.I32, size, intCols)
		require.NoError(m, c.AllGather(s, dst, m.ints.Slice(3, 4)))
		require.NoError(m, comm.Copy(c, s, m.ints.Slice(3, 4), dst.Slice((rank+1)%size, (rank+1)%size+1)))
	}
}

// exchange is an all-to-all with random counts, in other orders and with zeros.
func (m *mixer) exchange(rng *rand.Rand) {
	size, rank := m.c.Size(), m.c.Rank()
	matrix := make([][]int, size)
	for i := range matrix {
		matrix[i], _ = m.counts(rng)
	}
	recv, sum, sent := make([]int, size), 0, 0
	for i := range matrix {
		recv[i] = matrix[i][rank]
		sum += recv[i]
		sent += matrix[rank][i]
	}
	dst := m.result(dtype.I32, max(1, sum), intCols).Slice(0, sum)
	require.NoError(m, m.c.AllToAllV(comm.Stream{}, comm.Host(matrix[rank]), comm.Host(recv), comm.Part{Dst: dst, Src: m.ints.Slice(0, sent)}))
}
