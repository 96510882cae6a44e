package model

import (
	"github.com/weftgo/weft/internal/gemm"
	"github.com/weftgo/weft/internal/simd"
)

// Tiles of attention. A row's result is a chain over the keys in tiles of tileKeys at fixed, absolute positions, so it does not
// depend on how the prompt was cut into steps, on what else is in the batch, or on the block size.
const (
	tileKeys = 64 // a multiple of lanes
	tileRows = 64 // query rows (positions x heads of the group) that share the keys they read
)

// unit is a piece of attention that one core does: some positions of one sequence, one key/value head.
type unit struct {
	seq, group   int32
	first, count int32 // rows of the step
}

// tilePositions is the number of positions in a unit for a group of that many heads.
func tilePositions(heads int) int { return max(1, tileRows/heads) }

// cutUnits lists the units of a step; the ones with most keys of a sequence come first.
func (m *Model) cutUnits() {
	st := &m.step
	st.units = st.units[:0]
	first := 0
	for i := range st.batch.Seqs {
		s := &st.batch.Seqs[i]
		n := len(s.Tokens)
		for g := range m.groups {
			size := tilePositions(m.groups[g].heads)
			for end := n; end > 0; {
				// Tiles begin at multiples of their size, counted from position 0.
				begin := max(0, (s.Start+end-1)/size*size-s.Start)
				st.units = append(st.units, unit{seq: int32(i), group: int32(g), first: int32(first + begin), count: int32(end - begin)})
				end = begin
			}
		}
		first += n
	}
}

// attendUnits computes units [lo, hi) of the step for the current layer: queries and cache in, m.attn out.
func (m *Model) attendUnits(lo, hi int) {
	t := m.getWorker()
	for i := lo; i < hi; i++ {
		m.attendUnit(t, &m.step.units[i])
	}
	m.putWorker(t)
}

func (m *Model) attendUnit(t *worker, u *unit) {
	st, geo, c := &m.step, &m.geo, &m.layer.cache
	grp := &m.groups[u.group]
	blocks := st.batch.Seqs[u.seq].Blocks
	d, w := geo.headDim, geo.width
	rows := int(u.count) * grp.heads
	// Queries of a group lie together: [group][token][head of the group][headDim].
	q := m.q[(grp.first*st.numTokens+int(u.first)*grp.heads)*d:][:rows*d]
	p0 := int(st.pos[u.first])
	end := p0 + int(u.count) // keys [0, end)

	for k0 := 0; k0 < end; k0 += tileKeys {
		keys := min(tileKeys, end-k0)
		skip := max(0, k0-p0) * grp.heads // rows whose position lies before this tile
		n := rows - skip
		for k := k0; k < k0+keys; {
			block, off := k/geo.blockSize, k%geo.blockSize
			run := min(geo.blockSize-off, k0+keys-k)
			b := geo.keyBlock(c, int(u.group), int(blocks[block]))[off*d:]
			// Whole panels: columns of keys that are not there are not read.
			gemm.Panels(t.scores[skip*tileKeys+k-k0:], tileKeys, q[skip*d:], d, n, d, b, d*lanes, (run+lanes-1)/lanes*lanes, false)
			k += run
		}
		t.softmax(skip, rows, w, p0-k0, keys, grp.heads, k0 == 0)
		for k := k0; k < k0+keys; {
			block, off := k/geo.blockSize, k%geo.blockSize
			run := min(geo.blockSize-off, k0+keys-k)
			b := geo.valueBlock(c, int(u.group), int(blocks[block]))[off*lanes:]
			gemm.Panels(t.out[skip*w:], w, t.scores[skip*tileKeys+k-k0:], tileKeys, n, run, b, geo.blockSize*lanes, w, k > 0)
			k += run
		}
	}
	for r := range rows {
		o := t.out[r*w : r*w+d]
		simd.Scale(o, 1/t.sum[r])
		row := int(u.first) + r/grp.heads
		head := grp.first + r%grp.heads
		copy(m.attn[(row*m.heads.len()+head)*d:], o)
	}
}

// softmax turns the scores of rows [lo, hi) into exp(score - largest so far), rescales what the rows gathered before, and puts
// zeros where a key lies after the row. offset is the position of row 0 less that of key 0 of the tile.
func (t *worker) softmax(lo, hi, width, offset, keys, heads int, first bool) {
	for r := lo; r < hi; r++ {
		seen := min(keys, offset+r/heads+1)
		most := simd.Max(t.scores[r*tileKeys : r*tileKeys+seen])
		if !first {
			most = max(most, t.most[r])
			t.shrink[r] = t.most[r] - most
		}
		t.most[r] = most
	}
	if !first {
		simd.Exp(t.shrink[lo:hi], t.shrink[lo:hi])
	}
	for r := lo; r < hi; r++ {
		seen := min(keys, offset+r/heads+1)
		s := t.scores[r*tileKeys : r*tileKeys+keys]
		sum := simd.SoftmaxExp(s[:seen], s[:seen], t.most[r])
		clear(s[seen:])
		if !first {
			if f := t.shrink[r]; f != 1 {
				simd.Scale(t.out[r*width:(r+1)*width], f)
				t.sum[r] = float32(t.sum[r] * f)
			}
			sum += t.sum[r]
		}
		t.sum[r] = sum
	}
}
