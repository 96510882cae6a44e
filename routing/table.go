package routing

// Table is a Placement compiled for loops: where each replica of each logical expert lives. It is read-only after NewTable
// and may be shared.
type Table struct {
	placement Placement
	start     []int32 // [NumExperts+1]: replicas of expert e are start[e] to start[e+1], none of a missing one; nil without replicas
	rank      []int32 // [NumPhysical], replicas of one expert together
	local     []int32 // [NumPhysical]
}

// NewTable compiles p, or returns what Validate says.
func NewTable(p Placement) (*Table, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	n := p.NumPhysical()
	t := &Table{placement: p, rank: make([]int32, n), local: make([]int32, n)}
	next := make([]int32, p.NumExperts)
	if p.Physical != nil {
		t.start = make([]int32, p.NumExperts+1)
		for _, e := range p.Physical {
			t.start[e+1]++
		}
		for e := range p.NumExperts {
			t.start[e+1] += t.start[e]
			next[e] = t.start[e]
		}
	}
	for i := range n {
		at := i
		if p.Physical != nil {
			e := p.Physical[i]
			at = int(next[e])
			next[e]++
		}
		rank, local := p.OwnerOfPhysical(i)
		t.rank[at], t.local[at] = int32(rank), int32(local)
	}
	return t, nil
}

// Placement returns what the table was made of.
func (t *Table) Placement() Placement { return t.placement }

// Has reports whether an id is that of an expert with a place. Other ids are dropped.
func (t *Table) Has(id int32) bool {
	if uint32(id) >= uint32(t.placement.NumExperts) {
		return false
	}
	return t.start == nil || t.start[id] < t.start[id+1]
}

// Place is Placement.Place without a search. expert must be in [0, NumExperts); a missing one is at -1, -1.
func (t *Table) Place(token int, expert int32) (rank, local int32) {
	at := expert
	if t.start != nil {
		first, end := t.start[expert], t.start[expert+1]
		at = first
		switch n := int(end - first); {
		case n > 1:
			at += int32(token % n)
		case n == 0:
			return -1, -1
		}
	}
	return t.rank[at], t.local[at]
}

// Locals writes into dst [numRows, topK] the local expert of each id that rank me owns, and -1 elsewhere. ids
// [numRows, topK] are rows 0, 1, ... of source rank source.
func (t *Table) Locals(dst, ids []int32, topK, source, me int) {
	numExperts := uint32(t.placement.NumExperts)
	row, k := 0, 0
	for i, e := range ids {
		dst[i] = -1
		if uint32(e) < numExperts {
			if rank, local := t.Place(TokenNumber(source, row), e); int(rank) == me {
				dst[i] = local
			}
		}
		if k++; k == topK {
			k = 0
			row++
		}
	}
}
