package moe

import (
	"sync"

	"github.com/weftgo/weft/internal/par"
	"github.com/weftgo/weft/internal/simd"
)

// experts is the CPU kernel of the local experts. It works in tiles of rows, so that the expert outputs of a tile stay in
// the cache until they are summed:
//
//	tile of rows ─ for each expert its slots of the tile ─ gate, up ─ SwiGLU ─ down ─> y [slots of the tile, hidden]
//	             ─ for each row                            partial row = sum over k of float32(weight * y)
//
// No row is copied to gather it: the products read rows of x through the index.
type experts struct {
	hidden, topK int
	width        int   // of each expert here; 0 when this rank has nothing of them
	stride       int   // of a row between the products
	list         []ffn // [numLocal]

	// The call in progress.
	y, x       []float32
	index      index
	numRows    int
	tileRows   int
	shared     *ffn // added to the partial rows; nil for none
	expertRows bool // y is [numSlots, hidden], without weights and sums
	fn         func(lo, hi int)
}

// Sizes of the work.
const (
	tileBytes = 512 << 10 // of expert outputs that one tile is meant to have
	minTile   = 16        // rows
	minOps    = 1 << 19   // multiply-adds that are worth another goroutine
)

func newExperts(hidden, topK, width int, list []ffn) *experts {
	e := &experts{hidden: hidden, topK: topK, width: width, stride: hiddenStride(width), list: list}
	e.fn = e.tiles
	return e
}

// partial computes the partial rows y [numRows, hidden] of x [numRows, hidden]: for each row the fp32 sum in k order, from
// +0, of weight x output of its local experts, each product rounded; then the row of shared, when not nil. Rows without
// a local expert become zeros (and their shared row).
func (e *experts) partial(y, x []float32, numRows int, i index, shared *ffn) {
	e.run(y, x, numRows, i, shared, false)
}

// slots computes one row of y [numSlots, hidden] for each slot of the index, without weights. Padding slots are left alone.
func (e *experts) slots(y, x []float32, numRows int, i index) { e.run(y, x, numRows, i, nil, true) }

func (e *experts) run(y, x []float32, numRows int, i index, shared *ffn, expertRows bool) {
	if numRows == 0 {
		return
	}
	if shared != nil && shared.width == 0 {
		shared = nil
	}
	e.y, e.x, e.index, e.numRows, e.shared, e.expertRows = y, x, i, numRows, shared, expertRows
	perRow := max(float64(i.numTrue())/float64(numRows), 1)
	e.tileRows = max(int(float64(tileBytes/4/e.hidden)/perRow), minTile)
	numTiles := (numRows + e.tileRows - 1) / e.tileRows
	e.tileRows = (numRows + numTiles - 1) / numTiles // of equal height
	par.For((numRows+e.tileRows-1)/e.tileRows, 1, e.fn)
	e.y, e.x, e.index, e.shared = nil, nil, index{}, nil
}

func (e *experts) tiles(lo, hi int) {
	t := tilePool.Get().(*tile)
	for i := lo; i < hi; i++ {
		t.run(e, i*e.tileRows, min((i+1)*e.tileRows, e.numRows))
	}
	t.experts = nil
	tilePool.Put(t)
}

// A tile is the work on rows [lo, hi) and its scratch. Several goroutines may share the work.
type tile struct {
	experts *experts
	lo, hi  int
	first   []int32   // [numLocal]: first slot of the index
	at      []int32   // [numLocal+1]: first slot of the tile
	slot    []int32   // [rows, topK]: slot of the tile, -1 for none
	weight  []float32 // [rows, topK]: of slot
	y       []float32 // [slots of the tile, hidden]
	h       []float32 // [slots of the tile, stride]
	sharedY []float32 // [rows, hidden]
	sharedH []float32 // [rows, stride of the shared experts]

	multiplyFn, sumFn func(lo, hi int)
}

var tilePool = sync.Pool{New: func() any {
	t := new(tile)
	t.multiplyFn, t.sumFn = t.multiply, t.sum
	return t
}}

func (t *tile) run(e *experts, lo, hi int) {
	t.experts, t.lo, t.hi = e, lo, hi
	numLocal := len(e.list)
	t.first, t.at = grow(&t.first, numLocal), grow(&t.at, numLocal+1)
	slots := 0
	for i := range numLocal {
		a, b := e.index.span(i, int32(lo), int32(hi))
		t.first[i], t.at[i] = int32(a), int32(slots)
		slots += b - a
	}
	t.at[numLocal] = int32(slots)
	t.h = grow(&t.h, slots*e.stride)
	if !e.expertRows {
		t.y = grow(&t.y, slots*e.hidden)
		t.locate()
	}
	if slots > 0 && e.width > 0 {
		perExpert := slots * e.width * 3 * e.hidden / numLocal
		par.For(numLocal, max(1, minOps/max(perExpert, 1)), t.multiplyFn)
	}
	if !e.expertRows {
		grain := hi - lo
		if e.shared != nil {
			grain = max(1, minOps/(e.shared.width*3*e.hidden))
			t.sharedY = grow(&t.sharedY, (hi-lo)*e.hidden)
			t.sharedH = grow(&t.sharedH, (hi-lo)*e.shared.stride)
		}
		par.For(hi-lo, max(grain, minOps/8/e.hidden), t.sumFn)
	}
}

// locate fills slot, from which sum finds the outputs of a row in k order.
func (t *tile) locate() {
	e := t.experts
	t.slot, t.weight = grow(&t.slot, (t.hi-t.lo)*e.topK), grow(&t.weight, (t.hi-t.lo)*e.topK)
	for i := range t.slot {
		t.slot[i] = -1
	}
	if e.width == 0 {
		return
	}
	for i := range e.list {
		s, a := t.at[i], t.first[i]
		n := t.at[i+1] - s
		row, k, weight := e.index.row[a:a+n], e.index.k[a:a+n], e.index.weight[a:a+n]
		for j, r := range row {
			at := (int(r)-t.lo)*e.topK + int(k[j])
			t.slot[at], t.weight[at] = s+int32(j), weight[j]
		}
	}
}

// multiply runs experts [lo, hi) on their slots of the tile.
func (t *tile) multiply(lo, hi int) {
	e := t.experts
	for i := lo; i < hi; i++ {
		s0, s1 := int(t.at[i]), int(t.at[i+1])
		if s0 == s1 {
			continue
		}
		a := int(t.first[i])
		y := t.y
		if e.expertRows {
			y = e.y[a*e.hidden:]
		} else {
			y = y[s0*e.hidden:]
		}
		e.list[i].rows(y, e.x, e.index.row[a:a+s1-s0], t.h[s0*e.stride:s1*e.stride])
	}
}

// sum writes the partial rows [lo, hi) of the tile.
func (t *tile) sum(lo, hi int) {
	e := t.experts
	h := e.hidden
	for row := lo; row < hi; row++ {
		out := e.y[(t.lo+row)*h : (t.lo+row+1)*h]
		k0, k1 := row*e.topK, (row+1)*e.topK
		simd.WeightedSum(out, t.y, h, t.slot[k0:k1], t.weight[k0:k1])
	}
	if f := e.shared; f != nil {
		y := t.sharedY[lo*h : hi*h]
		f.block(y, e.x[(t.lo+lo)*h:], hi-lo, t.sharedH[lo*f.stride:hi*f.stride])
		simd.Add(e.y[(t.lo+lo)*h:(t.lo+hi)*h], y)
	}
}
