package routing

// Index groups received rows by local expert. A slot is one (row, local expert) pair; the slots of an expert lie together,
// ordered by (row, k), and are padded to a multiple of the alignment. All slices are the Index's and valid until the next
// Build.
type Index struct {
	Row     []int32   // [numSlots]: row, -1 in padding
	K       []int32   // [numSlots]: which of the token's k choices, -1 in padding
	Weight  []float32 // [numSlots]: its weight, 0 in padding
	Counts  []int32   // [2, numLocal]: true counts, then padded counts
	Offsets []int32   // [numLocal+1]: first slot of each expert
	Slot    []int32   // [numRows, topK]: the slot of each choice, -1 for none: the inverse of Row and K
	NumTrue int       // slots without padding
	next    []int32
}

// BuildIndex groups rows with locals [numRows, topK] (a local expert, or anything outside [0, numLocal) for none) and
// weights [numRows, topK].
func BuildIndex(locals []int32, weights []float32, topK, numLocal, alignment int) *Index {
	x := &Index{}
	x.Build(locals, weights, topK, numLocal, alignment)
	return x
}

// Build replaces the index: a counting sort. It allocates only when a batch is larger than all before.
func (x *Index) Build(locals []int32, weights []float32, topK, numLocal, alignment int) {
	alignment = max(alignment, 1)
	x.Counts = resize(x.Counts, 2*numLocal)
	x.Offsets = resize(x.Offsets, numLocal+1)
	x.next = resize(x.next, numLocal)
	x.Slot = resize(x.Slot, len(locals))
	clear(x.Counts)
	for _, e := range locals {
		if uint32(e) < uint32(numLocal) {
			x.Counts[e]++
		}
	}
	total := 0
	x.NumTrue = 0
	for e := range numLocal {
		n := int(x.Counts[e])
		padded := (n + alignment - 1) / alignment * alignment
		x.Counts[numLocal+e] = int32(padded)
		x.Offsets[e], x.next[e] = int32(total), int32(total)
		total += padded
		x.NumTrue += n
	}
	x.Offsets[numLocal] = int32(total)
	x.Row, x.K, x.Weight = resize(x.Row, total), resize(x.K, total), resize(x.Weight, total)
	row, k := int32(0), 0
	for i, e := range locals {
		x.Slot[i] = -1
		if uint32(e) < uint32(numLocal) {
			s := x.next[e]
			x.next[e]++
			x.Slot[i], x.Row[s], x.K[s], x.Weight[s] = s, row, int32(k), weights[i]
		}
		if k++; k == topK {
			k = 0
			row++
		}
	}
	for e := range numLocal {
		for s := x.next[e]; s < x.Offsets[e+1]; s++ {
			x.Row[s], x.K[s], x.Weight[s] = -1, -1, 0
		}
	}
}

// NumSlots returns the number of slots, padding included.
func (x *Index) NumSlots() int { return len(x.Row) }
