package tokenizer

// model is the merge table of a byte-level BPE.
type model struct {
	byteID [256]int32
	merges map[uint64]merge // of pair(left, right)
	whole  map[string]int32 // token of a whole piece, tried before merging; nil unless the file says ignore_merges
}

type merge struct{ rank, id int32 }

func pair(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

const noRank = int32(1<<31 - 1)

// shortPiece is the longest piece, in bytes, that is merged by searching an array over and over, which costs the
// square of the length at worst; longer ones use a heap.
const shortPiece = 32

// appendIDs appends the ids of one piece of text.
func (m *model) appendIDs(out []int32, piece string, s *scratch) []int32 {
	switch {
	case piece == "":
		return out
	case len(piece) == 1:
		return append(out, m.byteID[piece[0]])
	case len(piece) <= maxCachedLen:
		if ids, ok := s.cache[piece]; ok {
			return append(out, ids...)
		}
	}
	from := len(out)
	if id, ok := m.whole[piece]; ok {
		out = append(out, id)
	} else if len(piece) <= shortPiece {
		out = m.mergeShort(out, piece)
	} else {
		out = m.mergeLong(out, piece, &s.long)
	}
	if len(piece) <= maxCachedLen {
		s.remember(piece, out[from:])
	}
	return out
}

// mergeShort merges the pair of lowest rank, the leftmost of equals, until no pair of neighbours merges.
func (m *model) mergeShort(out []int32, piece string) []int32 {
	var ids, merged, ranks [shortPiece]int32 // merged and ranks are of the pair (i, i+1)
	n := len(piece)
	for i := range n {
		ids[i] = m.byteID[piece[i]]
	}
	look := func(i int) {
		ranks[i] = noRank
		if i+1 < n {
			if mg, ok := m.merges[pair(ids[i], ids[i+1])]; ok {
				ranks[i], merged[i] = mg.rank, mg.id
			}
		}
	}
	for i := range n {
		look(i)
	}
	for {
		best := 0
		for i := 1; i < n; i++ {
			if ranks[i] < ranks[best] {
				best = i
			}
		}
		if ranks[best] == noRank {
			return append(out, ids[:n]...)
		}
		ids[best] = merged[best]
		copy(ids[best+1:n-1], ids[best+2:n])
		copy(ranks[best+1:n-1], ranks[best+2:n])
		copy(merged[best+1:n-1], merged[best+2:n])
		n--
		look(best)
		if best > 0 {
			look(best - 1)
		}
	}
}

// chain is a piece in the course of mergeLong: its tokens as a linked list over positions, and a heap of the pairs
// that could merge. Pairs whose tokens have changed since stay in the heap and are skipped when they come up.
type chain struct {
	ids, prev, next []int32
	heap            []candidate
}

type candidate struct{ rank, pos, left, right, id int32 }

const gone = int32(-1) // id of a position that was merged into its left neighbour

func (m *model) mergeLong(out []int32, piece string, c *chain) []int32 {
	c.ids, c.prev, c.next, c.heap = c.ids[:0], c.prev[:0], c.next[:0], c.heap[:0]
	n := int32(len(piece))
	for i := range n {
		c.ids = append(c.ids, m.byteID[piece[i]])
		c.prev = append(c.prev, i-1)
		c.next = append(c.next, i+1)
	}
	for i := range n - 1 {
		m.offer(c, i)
	}
	for len(c.heap) > 0 {
		best := c.pop()
		right := c.next[best.pos]
		if c.ids[best.pos] != best.left || right == n || c.ids[right] != best.right {
			continue
		}
		c.ids[best.pos], c.ids[right] = best.id, gone
		after := c.next[right]
		c.next[best.pos] = after
		if after < n {
			c.prev[after] = best.pos
			m.offer(c, best.pos)
		}
		if before := c.prev[best.pos]; before >= 0 {
			m.offer(c, before)
		}
	}
	for i := int32(0); i < n; i = c.next[i] {
		out = append(out, c.ids[i])
	}
	return out
}

// offer puts the pair that begins at pos into the heap if it merges.
func (m *model) offer(c *chain, pos int32) {
	left, right := c.ids[pos], c.ids[c.next[pos]]
	if mg, ok := m.merges[pair(left, right)]; ok {
		c.push(candidate{rank: mg.rank, pos: pos, left: left, right: right, id: mg.id})
	}
}

func (a candidate) less(b candidate) bool {
	return a.rank < b.rank || a.rank == b.rank && a.pos < b.pos
}

func (c *chain) push(x candidate) {
	h := append(c.heap, x)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !x.less(h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = x
	c.heap = h
}

func (c *chain) pop() candidate {
	h := c.heap
	top, x := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	for i := 0; len(h) > 0; {
		down := 2*i + 1
		if down+1 < len(h) && h[down+1].less(h[down]) {
			down++
		}
		if down >= len(h) || !h[down].less(x) {
			h[i] = x
			break
		}
		h[i] = h[down]
		i = down
	}
	c.heap = h
	return top
}
