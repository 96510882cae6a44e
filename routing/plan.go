package routing

import "fmt"

// Plan says which rows of one rank go to which rank. A copy is one (token, destination rank) pair; copies are ordered by
// destination, then by token. All slices are the Plan's and valid until the next Build.
type Plan struct {
	NumTokens int
	TopK      int
	Counts    []int   // [size]: copies for each rank
	Start     []int32 // [size+1]: first copy of each rank; the last is the number of copies
	Tokens    []int32 // [numCopies]: the token of each copy
	Locals    []int32 // [numCopies, topK]: the expert's index on that rank for the k it is asked for, -1 for others
	// ByToken lists the copies of token t in rank order at ByToken[TokenStart[t]:TokenStart[t+1]].
	TokenStart []int32 // [numTokens+1]
	ByToken    []int32 // [numCopies]
	DroppedIDs int     // ids outside [0, NumExperts), and of experts without a place

	table  *Table
	source int
	size   int
	at     []int32 // [size]: next copy of a rank; then the current one
	seen   []int32 // [size]: 1 + the last token that has a copy for the rank
	rank   []int32 // [numTokens, topK]: where each k goes, -1 nowhere
	local  []int32 // [numTokens, topK]
}

// NewPlan plans the rows of rank 0 with ids [numTokens, topK]. Ids outside [0, NumExperts) are dropped and counted, and so are
// those of missing experts.
// It returns an error for an invalid placement or for ids that are not a whole number of rows.
func NewPlan(p Placement, ids []int32, topK int) (*Plan, error) {
	t, err := NewTable(p)
	if err != nil {
		return nil, err
	}
	plan := t.NewPlan(0)
	if err := plan.Build(ids, topK); err != nil {
		return nil, err
	}
	return plan, nil
}

// NewPlan returns an empty plan of one source rank, to be filled by Build.
func (t *Table) NewPlan(source int) *Plan {
	size := t.placement.Size
	return &Plan{table: t, source: source, size: size, Counts: make([]int, size), Start: make([]int32, size+1),
		at: make([]int32, size), seen: make([]int32, size), TokenStart: make([]int32, 1)}
}

// Build replaces the plan by that of ids [numTokens, topK]. It allocates only when a batch is larger than all before.
func (p *Plan) Build(ids []int32, topK int) error {
	if topK < 1 || len(ids)%topK != 0 {
		return fmt.Errorf("routing: %d ids are not a whole number of rows of %d", len(ids), topK)
	}
	if len(ids) > maxInt32 {
		return fmt.Errorf("routing: %d ids do not fit 32 bits", len(ids))
	}
	p.NumTokens, p.TopK = len(ids)/topK, topK
	p.place(ids)
	copies := int32(0)
	for d, n := range p.Counts {
		p.Start[d], p.at[d], p.seen[d] = copies, copies, 0
		copies += int32(n)
	}
	p.Start[p.size] = copies
	p.Tokens = resize(p.Tokens, int(copies))
	p.Locals = resize(p.Locals, int(copies)*topK)
	p.fill()
	p.indexTokens()
	return nil
}

// place resolves every id to a rank and counts copies.
func (p *Plan) place(ids []int32) {
	p.rank, p.local = resize(p.rank, len(ids)), resize(p.local, len(ids))
	p.DroppedIDs = 0
	clear(p.Counts)
	clear(p.seen)
	numExperts := uint32(p.table.placement.NumExperts)
	for t := range p.NumTokens {
		for i := t * p.TopK; i < (t+1)*p.TopK; i++ {
			d, local := int32(-1), int32(-1)
			if uint32(ids[i]) < numExperts {
				d, local = p.table.Place(TokenNumber(p.source, t), ids[i])
			}
			p.rank[i], p.local[i] = d, local
			if d < 0 {
				p.DroppedIDs++
				continue
			}
			if p.seen[d] != int32(t+1) {
				p.seen[d] = int32(t + 1)
				p.Counts[d]++
			}
		}
	}
}

// fill writes the copies in token order.
func (p *Plan) fill() {
	for t := range p.NumTokens {
		for k := range p.TopK {
			d := p.rank[t*p.TopK+k]
			if d < 0 {
				continue
			}
			if p.seen[d] != int32(t+1) {
				p.seen[d] = int32(t + 1)
				c := p.at[d]
				p.at[d]++
				p.Tokens[c] = int32(t)
				row := p.Locals[int(c)*p.TopK : (int(c)+1)*p.TopK]
				for i := range row {
					row[i] = -1
				}
			}
			p.Locals[int(p.at[d]-1)*p.TopK+k] = p.local[t*p.TopK+k]
		}
	}
}

// indexTokens fills TokenStart and ByToken: copies come in rank order, so each token's do too.
func (p *Plan) indexTokens() {
	p.TokenStart = resize(p.TokenStart, p.NumTokens+1)
	p.ByToken = resize(p.ByToken, len(p.Tokens))
	clear(p.TokenStart)
	for _, t := range p.Tokens {
		p.TokenStart[t+1]++
	}
	for t := range p.NumTokens {
		p.TokenStart[t+1] += p.TokenStart[t]
	}
	// TokenStart[t] is the next place while copies are put there, which leaves it at TokenStart[t+1]; shift it back.
	for c, t := range p.Tokens {
		p.ByToken[p.TokenStart[t]] = int32(c)
		p.TokenStart[t]++
	}
	for t := p.NumTokens; t > 0; t-- {
		p.TokenStart[t] = p.TokenStart[t-1]
	}
	p.TokenStart[0] = 0
}

// NumCopies returns the number of copies.
func (p *Plan) NumCopies() int { return len(p.Tokens) }

// Keep drops all but the first keep[d] copies of each rank d, and returns how many copies went.
func (p *Plan) Keep(keep []int) (dropped int) {
	n := int32(0)
	for d := range p.size {
		first := p.Start[d]
		kept := min(int32(keep[d]), p.Start[d+1]-first)
		dropped += int(p.Start[d+1] - first - kept)
		copy(p.Tokens[n:], p.Tokens[first:first+kept])
		copy(p.Locals[int(n)*p.TopK:], p.Locals[int(first)*p.TopK:int(first+kept)*p.TopK])
		p.Start[d], p.Counts[d] = n, int(kept)
		n += kept
	}
	p.Start[p.size] = n
	if dropped > 0 {
		p.Tokens, p.Locals = p.Tokens[:n], p.Locals[:int(n)*p.TopK]
		p.indexTokens()
	}
	return dropped
}

// resize returns a slice of n elements in s's memory if they fit, with undefined content.
func resize[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	return make([]T, n, n+n/4)
}
