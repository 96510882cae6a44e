package p2p

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
)

// large times sizes of 64 MiB and more a rank, each call on other buffers than the one before.
func (x *timings) large() {
	const ranks, hidden, size = 8, 4096, dtypeSize
	w := x.open(ranks)
	for _, perRank := range []int{64 << 20, 256 << 20} {
		rows := perRank / hidden / size // of one rank
		even := uniformCounts(ranks, rows/ranks)
		skew := append([]int{rows / 2}, uniformCounts(ranks-1, rows/2/(ranks-1))...)
		total := func(n []int) (s int64) {
			for _, v := range n {
				s += int64(v) * hidden * size
			}
			return s
		}
		x.rotated(w, "all_reduce", int64(perRank), 2*ranks*int64(perRank), func(c *comm.Comm, s comm.Stream) func(int) error {
			in, out := x.filled(c, dtype.BF16, rows, hidden), x.filled(c, dtype.BF16, rows, hidden)
			return func(int) error { return c.AllReduce(s, out, in, comm.Sum) }
		})
		for _, counts := range [][]int{even, skew} {
			note := map[bool]string{true: "even", false: "half from rank 0"}[counts[0] == counts[1]]
			x.rotated(w, "all_gatherv "+note, total(counts), (1+ranks)*total(counts), func(c *comm.Comm, s comm.Stream) func(int) error {
				in, out := x.filled(c, dtype.BF16, counts[c.Rank()], hidden), x.filled(c, dtype.BF16, rows, hidden)
				return func(int) error { return c.AllGatherV(s, comm.Host(counts), comm.Part{Dst: out, Src: in}) }
			})
			x.rotated(w, "reduce_scatterv "+note, total(counts), (1+ranks)*total(counts), func(c *comm.Comm, s comm.Stream) func(int) error {
				in, out := x.filled(c, dtype.BF16, rows, hidden), x.filled(c, dtype.BF16, counts[c.Rank()], hidden)
				return func(int) error { return c.ReduceScatterV(s, comm.Host(counts), comm.Sum, comm.Part{Dst: out, Src: in}) }
			})
			// counts are what each rank receives, an eighth from everyone.
			send := make([]int, ranks)
			for j := range send {
				send[j] = counts[j] / ranks * 8
			}
			sent := total(send)
			x.rotated(w, "alltoallv "+note, sent, 2*ranks*sent, func(c *comm.Comm, s comm.Stream) func(int) error {
				recv := uniformCounts(ranks, send[c.Rank()])
				in, out := x.filled(c, dtype.BF16, rows+8, hidden), x.filled(c, dtype.BF16, ranks*send[c.Rank()], hidden)
				return func(int) error {
					return c.AllToAllV(s, comm.Host(send), comm.Host(recv), comm.Part{Dst: out, Src: in})
				}
			})
		}
	}
	x.narrow(w, 64<<20)
	require.NoError(x.t, w.Close(context.Background()))
}

// narrow times rows of few elements: without gaps, they are as good as wide ones.
func (x *timings) narrow(w *comm.World, bytes int) {
	const ranks = 8
	for _, cols := range []int{1, 3} {
		rows := bytes / dtypeSize / cols / ranks / ranks * ranks // from each rank, or to it
		n, all := uniformCounts(ranks, rows), rows*ranks
		total := int64(all * cols * dtypeSize)
		name := fmt.Sprintf(" [n, %d]", cols)
		x.rotated(w, "all_gatherv"+name, total, (1+ranks)*total, func(c *comm.Comm, s comm.Stream) func(int) error {
			in, out := x.filled(c, dtype.BF16, rows, cols), x.filled(c, dtype.BF16, all, cols)
			return func(int) error { return c.AllGatherV(s, comm.Host(n), comm.Part{Dst: out, Src: in}) }
		})
		x.rotated(w, "reduce_scatterv"+name, total, (1+ranks)*total, func(c *comm.Comm, s comm.Stream) func(int) error {
			in, out := x.filled(c, dtype.BF16, all, cols), x.filled(c, dtype.BF16, rows, cols)
			return func(int) error {
				return c.ReduceScatterV(s, comm.Host(n), comm.Sum, comm.Part{Dst: out, Src: in})
			}
		})
		x.rotated(w, "alltoallv"+name, total, 2*ranks*total, func(c *comm.Comm, s comm.Stream) func(int) error {
			in, out := x.filled(c, dtype.BF16, all, cols), x.filled(c, dtype.BF16, all, cols)
			return func(int) error {
				return c.AllToAllV(s, comm.Host(n), comm.Host(n), comm.Part{Dst: out, Src: in})
			}
		})
	}
}

const dtypeSize = 2

func uniformCounts(n, rows int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = rows
	}
	return list
}

// rotated times calls whose buffers together are far larger than L2: eight in a row in a graph, and four in a stream, which adds
// what the GPU's front end needs for launches of eight streams.
func (x *timings) rotated(w *comm.World, op string, bytes, moved int64, prepare func(c *comm.Comm, s comm.Stream) func(int) error) {
	us := x.graph(w, 8, prepare)
	x.add(timing{Op: op, How: "graph", Type: "bf16", Ranks: w.Size(), Size: bytes, Moved: moved, TimeUs: us, Note: "eight in a row"})
	x.recycle(w)
	const calls = 4
	us = x.run(w, 7, func(c *comm.Comm, s comm.Stream, st *cuda.Stream) func() error {
		fn := prepare(c, s)
		return func() error {
			for i := range calls {
				if err := fn(i); err != nil {
					return err
				}
			}
			return nil
		}
	})
	x.add(timing{Op: op, How: "stream", Type: "bf16", Ranks: w.Size(), Size: bytes, Moved: moved, TimeUs: us / calls, Note: "four in a row"})
	x.recycle(w)
}

// recycle gives all memory of the ranks' buffers back to their arenas.
func (x *timings) recycle(w *comm.World) {
	for _, c := range w.Local() {
		r := c.Conn().(*conn).r
		r.arena.mu.Lock()
		var large []uintptr
		for addr, p := range r.arena.used {
			if p.size >= 1<<20 {
				large = append(large, addr)
			}
		}
		r.arena.mu.Unlock()
		for _, addr := range large {
			require.NoError(x.t, r.arena.free(addr))
		}
	}
}
