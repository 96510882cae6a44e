package exchange

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/par"
	"github.com/weftgo/weft/routing"
)

// Partials makes a rank's partial rows from its expert rows. Its fields are the arguments of the call in progress, kept
// here so that the loop body is bound once and a call allocates nothing.
type Partials struct {
	dst, y  comm.Buffer
	index   *routing.Index
	topK    int
	first   int
	rounded dtype.DType
	body    func(lo, hi int)

	copyBody func(lo, hi int)
}

// Sum writes row i of dst [numRows, hidden] as the fp32 sum, over the k of row i that have a slot, in k order, from +0, of weight times
// row slot of y [numSlots, hidden], rounded to type rounded and stored as dst's. A row without slots becomes zeros.
func (p *Partials) Sum(dst, y comm.Buffer, index *routing.Index, topK int, rounded dtype.DType) {
	p.SumFrom(0, dst, y, index, topK, rounded)
}

// SumFrom is Sum where row i of dst is received row first + i.
func (p *Partials) SumFrom(first int, dst, y comm.Buffer, index *routing.Index, topK int, rounded dtype.DType) {
	if p.body == nil {
		p.body = p.rows
	}
	p.dst, p.y, p.index, p.topK, p.first, p.rounded = dst, y, index, topK, first, rounded
	par.For(dst.Rows(), grain(dst.Cols()*2), p.body)
	p.dst, p.y = comm.Buffer{}, comm.Buffer{}
}

func (p *Partials) rows(lo, hi int) {
	var buf [block]float32
	hidden := p.dst.Cols()
	inPlace := p.dst.DType() == dtype.F32 // sum where the result goes
	for i := lo; i < hi; i++ {
		slots := p.index.Slot[(p.first+i)*p.topK : (p.first+i+1)*p.topK]
		if !used(slots) {
			clear(p.dst.RowBytes(i))
			continue
		}
		for c := 0; c < hidden; c += block {
			acc := buf[:min(block, hidden-c)]
			if inPlace {
				acc = comm.Row[float32](p.dst, i)[c : c+len(acc)]
			}
			clear(acc)
			for _, s := range slots {
				if s >= 0 {
					addScaled(acc, p.index.Weight[s], p.y, int(s), c)
				}
			}
			if p.dst.DType() != p.rounded {
				round(acc, p.rounded)
			}
			if !inPlace {
				store(p.dst, i, c, acc)
			}
		}
	}
}

// Copy writes y [numRows, hidden] into dst of another or the same type, and zeros for rows without slots, which are not
// read. When dst is y itself, it only writes those zeros.
func (p *Partials) Copy(dst, y comm.Buffer, index *routing.Index, topK int) {
	if p.copyBody == nil {
		p.copyBody = p.copyRows
	}
	p.dst, p.y, p.index, p.topK = dst, y, index, topK
	par.For(dst.Rows(), grain(dst.Cols()/2), p.copyBody)
	p.dst, p.y = comm.Buffer{}, comm.Buffer{}
}

func (p *Partials) copyRows(lo, hi int) {
	var buf [block]float32
	hidden := p.dst.Cols()
	same := p.dst.Addr() == p.y.Addr() && p.dst.DType() == p.y.DType()
	for i := lo; i < hi; i++ {
		if !used(p.index.Slot[i*p.topK : (i+1)*p.topK]) {
			clear(p.dst.RowBytes(i))
			continue
		}
		for c := 0; !same && c < hidden; c += block {
			x := buf[:min(block, hidden-c)]
			load(x, p.y, i, c)
			store(p.dst, i, c, x)
		}
	}
}

func used(slots []int32) bool {
	for _, s := range slots {
		if s >= 0 {
			return true
		}
	}
	return false
}
