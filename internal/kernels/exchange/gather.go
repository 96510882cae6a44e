package exchange

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/par"
)

// Gatherer copies rows by a list. Like Partials it keeps the arguments of the call in progress.
type Gatherer struct {
	dst, src comm.Buffer
	list     []int32
	body     func(lo, hi int)
}

// Gather copies row list[i] of src to row i of dst, of the same type and columns; row i becomes zeros where list[i] is
// negative.
func (g *Gatherer) Gather(dst, src comm.Buffer, list []int32) {
	if g.body == nil {
		g.body = g.rows
	}
	g.dst, g.src, g.list = dst, src, list
	par.For(len(list), grain(dst.Cols()*dst.DType().Size()/4), g.body)
	*g = Gatherer{body: g.body}
}

func (g *Gatherer) rows(lo, hi int) {
	for i := lo; i < hi; i++ {
		if from := g.list[i]; from >= 0 {
			copy(g.dst.RowBytes(i), g.src.RowBytes(int(from)))
		} else {
			clear(g.dst.RowBytes(i))
		}
	}
}
