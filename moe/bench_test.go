package moe

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weftgo/weft/routing"
)

// BenchmarkExperts runs the experts of the bundled model's size: one rank with whole experts (width 80), and eight ranks with
// slices of width 10 or four whole experts each, one after another. ns/token is of all ranks together, so that the lines of one
// T can be divided.
func BenchmarkExperts(b *testing.B) {
	const hidden, numExperts, topK, width = 192, 32, 4, 80
	for _, numTokens := range []int{64, 256, 1000} {
		x, ids, weights := benchRows(numTokens, hidden, numExperts, topK)
		for _, c := range []struct {
			name       string
			ranks      int
			whole      bool
			rankWidth  int
			numExperts int
		}{{"1x80", 1, true, width, numExperts}, {"8x10", 8, false, width / 8, numExperts}, {"8ep", 8, true, width, numExperts / 8}} {
			kernels := make([]*experts, c.ranks)
			indexes := make([]index, c.ranks)
			for r := range kernels {
				kernels[r] = benchExperts(c.rankWidth, c.numExperts, hidden, topK)
				var i routing.Index
				locals := ids
				if c.ranks > 1 && c.whole {
					locals = make([]int32, len(ids))
					table, _ := routing.NewTable(routing.Placement{NumExperts: numExperts, Size: c.ranks})
					table.Locals(locals, ids, topK, 0, r)
				}
				i.Build(locals, weights, topK, c.numExperts, 1)
				indexes[r] = ofRouting(&i, c.numExperts)
			}
			y := make([]float32, numTokens*hidden)
			b.Run(fmt.Sprintf("T%d/%s", numTokens, c.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					for r, k := range kernels {
						k.partial(y, x, numTokens, indexes[r], nil)
					}
				}
				perToken := b.Elapsed().Seconds() / float64(b.N) / float64(numTokens)
				b.ReportMetric(perToken*1e9, "ns/token")
				b.ReportMetric(2*topK*3*hidden*width/perToken/1e9, "GFLOP/s")
			})
		}
	}
}

func benchExperts(width, numExperts, hidden, topK int) *experts {
	list := make([]ffn, numExperts)
	rng := rand.New(rand.NewPCG(1, 2))
	w := make([]float32, width*hidden)
	for i := range list {
		for j := range w {
			w[j] = rng.Float32() - 0.5
		}
		list[i], _ = packFFN(Expert{Gate: w, Up: w, Down: w}, width, hidden)
	}
	return newExperts(hidden, topK, width, list)
}

// benchRows draws rows and a uniform choice of topK different experts.
func benchRows(numTokens, hidden, numExperts, topK int) (x []float32, ids []int32, weights []float32) {
	rng := rand.New(rand.NewPCG(3, 4))
	x = make([]float32, numTokens*hidden)
	for i := range x {
		x[i] = rng.Float32() - 0.5
	}
	for range numTokens {
		for _, e := range rng.Perm(numExperts)[:topK] {
			ids, weights = append(ids, int32(e)), append(weights, 0.25)
		}
	}
	return x, ids, weights
}

func BenchmarkRouter(b *testing.B) {
	const hidden, numTokens = 192, 256
	for _, numExperts := range []int{32, 128} {
		b.Run(fmt.Sprintf("E%d", numExperts), func(b *testing.B) {
			x, ids, weights := benchRows(numTokens, hidden, numExperts, 4)
			r := newRouter(Config{Hidden: hidden, NumExperts: numExperts, TopK: 4, Renormalize: true},
				Weights{Router: benchMatrix(numExperts * hidden)})
			ws := new(Workspace)
			b.ReportAllocs()
			for b.Loop() {
				r.route(ws, ids, weights, x, numTokens)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/numTokens, "ns/token")
		})
	}
}

func benchMatrix(n int) []float32 {
	rng := rand.New(rand.NewPCG(5, 6))
	w := make([]float32, n)
	for i := range w {
		w[i] = rng.Float32() - 0.5
	}
	return w
}
