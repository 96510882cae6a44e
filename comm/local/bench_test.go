package local

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// onAll runs fn b.N times on every rank of a new world.
func onAll(b *testing.B, ranks int, prepare func(c *comm.Comm) func() error) {
	w, err := Open(Config{Ranks: ranks})
	require.NoError(b, err)
	fns := make([]func() error, ranks)
	for i, c := range w.Local() {
		fns[i] = prepare(c)
	}
	b.ReportAllocs()
	b.ResetTimer()
	require.NoError(b, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		fn := fns[c.Rank()]
		for range b.N {
			if err := fn(); err != nil {
				return err
			}
		}
		return nil
	}))
}

func BenchmarkBarrier(b *testing.B) {
	for _, ranks := range []int{1, 2, 3, 4, 8, 64} {
		b.Run(fmt.Sprintf("%dranks", ranks), func(b *testing.B) {
			onAll(b, ranks, func(c *comm.Comm) func() error {
				return func() error { return c.Barrier(comm.Stream{}) }
			})
		})
	}
}

// BenchmarkLine times what no meeting can do without: a cache line that goes from one core to another, half of a round trip.
func BenchmarkLine(b *testing.B) {
	if runtime.GOMAXPROCS(0) < 2 {
		b.Skip("needs two processors")
	}
	there, back := new(word), new(word)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range uint64(b.N) {
			look(there, i+1)
			back.Store(i + 1)
		}
	})
	for i := range uint64(b.N) {
		there.Store(i + 1)
		look(back, i+1)
	}
	wg.Wait()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/line")
}

func look(w *word, v uint64) {
	for looks := 1; w.Load() != v; looks++ {
		if looks%10000 == 0 {
			runtime.Gosched() // the other may need this core
		}
	}
}

// BenchmarkCollectives times whole worlds. Bytes are those of the largest buffer of one rank.
func BenchmarkCollectives(b *testing.B) {
	for _, kind := range []comm.OpKind{comm.AllReduce, comm.AllGatherV, comm.ReduceScatterV} {
		for _, ranks := range []int{2, 4, 8} {
			for _, bytes := range []int{4 << 10, 64 << 10, 2 << 20} {
				b.Run(fmt.Sprintf("%v/%dranks/%dKiB", kind, ranks, bytes>>10), func(b *testing.B) {
					b.SetBytes(int64(bytes))
					onAll(b, ranks, func(c *comm.Comm) func() error { return collective(c, kind, bytes) })
				})
			}
		}
	}
}

func collective(c *comm.Comm, kind comm.OpKind, bytes int) func() error {
	const cols = 128
	rows := bytes / 4 / cols
	counts := make([]int, c.Size())
	for i := range counts {
		counts[i] = rows / c.Size()
	}
	n := comm.Host(counts)
	whole := comm.Of(make([]float32, rows*cols), cols)
	other := comm.Of(make([]float32, rows*cols), cols)
	own := comm.Of(make([]float32, rows*cols/c.Size()), cols)
	switch kind {
	case comm.Barrier:
		return func() error { return c.Barrier(comm.Stream{}) }
	case comm.AllToAllV:
		return func() error { return c.AllToAllV(comm.Stream{}, n, n, comm.Part{Dst: other, Src: whole}) }
	case comm.AllReduce:
		return func() error { return c.AllReduce(comm.Stream{}, other, whole, comm.Sum) }
	case comm.AllGatherV:
		return func() error { return c.AllGatherV(comm.Stream{}, n, comm.Part{Dst: whole, Src: own}) }
	default:
		return func() error {
			return c.ReduceScatterV(comm.Stream{}, n, comm.Sum, comm.Part{Dst: own, Src: whole})
		}
	}
}

// BenchmarkReduce times the arithmetic of one piece of eight ranks, without meetings.
func BenchmarkReduce(b *testing.B) {
	for _, t := range dtype.All() {
		b.Run(t.String(), func(b *testing.B) {
			p := new(piece)
			for i := range 8 {
				p.srcs[i] = make([]byte, pieceSize*t.Size())
			}
			out := make([]byte, pieceSize*t.Size())
			b.SetBytes(int64(8 * pieceSize * t.Size()))
			for b.Loop() {
				p.reduceTo([][]byte{out}, p.srcs[:8], t, comm.Sum, false)
			}
		})
	}
}

// BenchmarkSmall times calls of few bytes, where the meeting is nearly all. One rank shows what a call costs without waiting.
func BenchmarkSmall(b *testing.B) {
	for _, kind := range []comm.OpKind{comm.AllReduce, comm.ReduceScatterV, comm.AllGatherV, comm.AllToAllV} {
		for _, ranks := range []int{1, 2} {
			for _, bytes := range []int{8, 512, 1024, 2048, 4096} {
				b.Run(fmt.Sprintf("%v/%dranks/%dB", kind, ranks, bytes), func(b *testing.B) {
					onAll(b, ranks, func(c *comm.Comm) func() error { return smallCall(c, kind, bytes) })
				})
			}
		}
	}
}

// smallCall is a call whose largest buffer has that many bytes in rows of one float.
func smallCall(c *comm.Comm, kind comm.OpKind, bytes int) func() error {
	rows := bytes / 4
	counts := make([]int, c.Size())
	for i := range counts {
		counts[i] = rows / c.Size()
	}
	n := comm.Host(counts)
	whole, other := comm.Of(make([]float32, rows), 1), comm.Of(make([]float32, rows), 1)
	own := comm.Of(make([]float32, rows/c.Size()), 1)
	switch kind {
	case comm.AllToAllV:
		return func() error { return c.AllToAllV(comm.Stream{}, n, n, comm.Part{Dst: other, Src: whole}) }
	case comm.AllReduce:
		return func() error { return c.AllReduce(comm.Stream{}, other, whole, comm.Sum) }
	case comm.AllGatherV:
		return func() error { return c.AllGatherV(comm.Stream{}, n, comm.Part{Dst: whole, Src: own}) }
	default:
		return func() error {
			return c.ReduceScatterV(comm.Stream{}, n, comm.Sum, comm.Part{Dst: own, Src: whole})
		}
	}
}
