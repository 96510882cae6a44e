package model

// span is a half-open range of rows, heads or columns.
type span struct{ lo, hi int }

func (s span) len() int { return s.hi - s.lo }

// share cuts n things into parts contiguous spans, the first n%parts of them one longer, and returns span i.
func share(n, parts, i int) span {
	q, r := n/parts, n%parts
	lo := i*q + min(i, r)
	hi := lo + q
	if i < r {
		hi++
	}
	return span{lo, hi}
}

// paddedShare cuts n things into parts spans of ceil(n/parts), of which the last are shorter or empty, and returns span i
// and that length: what a gather of equal shares needs.
func paddedShare(n, parts, i int) (span, int) {
	width := (n + parts - 1) / parts
	return span{min(i*width, n), min((i+1)*width, n)}, width
}

// group is the query heads of one rank that read one key/value head.
type group struct {
	kv    int // key/value head of the model
	first int // first query head, counted within the rank
	heads int // query heads
}

// headGroups returns the query heads of tensor-parallel rank t of tp and their groups. Query heads are shared out evenly; each
// rank holds every key/value head that one of its query heads reads, so a key/value head may lie on several ranks.
func headGroups(numHeads, numKV, tp, t int) (q span, groups []group) {
	q = share(numHeads, tp, t)
	perKV := numHeads / numKV
	for h := q.lo; h < q.hi; {
		kv := h / perKV
		end := min((kv+1)*perKV, q.hi)
		groups = append(groups, group{kv: kv, first: h - q.lo, heads: end - h})
		h = end
	}
	return q, groups
}
