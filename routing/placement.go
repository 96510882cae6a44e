package routing

import "fmt"

// Placement says which rank owns which expert. The zero value but for NumExperts and Size is linear: contiguous blocks,
// where the first NumExperts mod Size ranks own one expert more. Every part of weft asks Placement and nothing else.
type Placement struct {
	NumExperts int  // logical experts, at least 1
	Size       int  // ranks, at least 1; may exceed NumExperts (then some ranks own none)
	RoundRobin bool // expert e lives on rank e mod Size instead of in blocks
	// Physical, when not nil, lists physical experts in rank order: Physical[p] is the logical expert of which p is a
	// replica. Every logical expert needs at least one, unless AllowMissing. Physical experts are placed linearly or
	// round-robin as above.
	Physical []int32
	// AllowMissing lets experts be without a place, as after a rank died: ids of such experts are dropped and counted, as those
	// outside [0, NumExperts) are, and the weights of a token's other experts stay as they are.
	AllowMissing bool
}

// Validate reports the first thing that makes p unusable, with the numbers.
func (p Placement) Validate() error {
	switch {
	case p.NumExperts < 1:
		return fmt.Errorf("placement: %d experts; at least 1 is needed", p.NumExperts)
	case p.Size < 1:
		return fmt.Errorf("placement: %d ranks; at least 1 is needed", p.Size)
	case p.NumPhysical() > maxInt32:
		return fmt.Errorf("placement: %d experts do not fit 32 bits", p.NumPhysical())
	case p.Physical == nil:
		return nil
	}
	seen := make([]bool, p.NumExperts)
	for i, e := range p.Physical {
		if e < 0 || int(e) >= p.NumExperts {
			return fmt.Errorf("placement: physical expert %d is a replica of expert %d, which is outside [0, %d)", i, e, p.NumExperts)
		}
		seen[e] = true
	}
	for e, ok := range seen {
		if !ok && !p.AllowMissing {
			return fmt.Errorf("placement: expert %d has no replica among the %d physical experts; add one, or set AllowMissing to drop its ids", e, len(p.Physical))
		}
	}
	return nil
}

const maxInt32 = 1<<31 - 1

// NumPhysical returns the number of physical experts: NumExperts without replicas.
func (p Placement) NumPhysical() int {
	if p.Physical != nil {
		return len(p.Physical)
	}
	return p.NumExperts
}

// NumLocal returns how many physical experts rank owns. The sum over ranks is NumPhysical.
func (p Placement) NumLocal(rank int) int {
	n := p.NumPhysical()
	k := n / p.Size
	if rank < n%p.Size {
		k++
	}
	return k
}

// OwnerOfPhysical returns the rank that owns physical expert e, and its index among that rank's experts.
func (p Placement) OwnerOfPhysical(e int) (rank, local int) {
	if p.RoundRobin {
		return e % p.Size, e / p.Size
	}
	n := p.NumPhysical()
	k, more := n/p.Size, n%p.Size
	if e < more*(k+1) {
		return e / (k + 1), e % (k + 1)
	}
	e -= more * (k + 1)
	return more + e/k, e % k
}

// PhysicalOf returns the physical expert at index local of rank: the inverse of OwnerOfPhysical.
func (p Placement) PhysicalOf(rank, local int) int {
	if p.RoundRobin {
		return local*p.Size + rank
	}
	n := p.NumPhysical()
	k, more := n/p.Size, n%p.Size
	return rank*k + min(rank, more) + local
}

// LogicalOf returns the logical expert at index local of rank.
func (p Placement) LogicalOf(rank, local int) int {
	return p.logicalOf(p.PhysicalOf(rank, local))
}

func (p Placement) logicalOf(physical int) int {
	if p.Physical != nil {
		return int(p.Physical[physical])
	}
	return physical
}

// Owner returns the rank and local index of a logical expert: of its first replica when it has several, and -1, -1 when it is
// missing.
func (p Placement) Owner(expert int) (rank, local int) { return p.Place(0, expert) }

// Place returns which replica of a logical expert a token uses: replica number token mod (number of replicas), in the
// order of Physical. It is a pure function of (token, expert), so that all ranks agree without talking. Exchangers number
// the token at row t of source rank r by [TokenNumber]. A missing expert is at -1, -1. Loops use a [Table], which does not
// search.
func (p Placement) Place(token, expert int) (rank, local int) {
	if p.Physical == nil {
		return p.OwnerOfPhysical(expert)
	}
	replicas := 0
	for _, l := range p.Physical {
		if int(l) == expert {
			replicas++
		}
	}
	if replicas == 0 && p.AllowMissing {
		return -1, -1
	}
	if replicas == 0 {
		panic(fmt.Sprintf("routing: expert %d has no replica; call Validate first", expert))
	}
	skip := token % replicas
	for e, l := range p.Physical {
		if int(l) == expert {
			if skip == 0 {
				return p.OwnerOfPhysical(e)
			}
			skip--
		}
	}
	panic("unreachable")
}

// TokenNumber is the number of the token at a row of a source rank, as [Placement.Place] takes it. Neighbouring ranks start
// at different replicas, so that one token per rank (decoding) spreads over them too.
func TokenNumber(rank, row int) int { return rank + row }

// ExpectedCopies returns how many ranks a token is expected to visit when its topK distinct experts are drawn evenly, for
// placements without replicas: the sum over ranks of 1 - C(E-n, k)/C(E, k), where n is the rank's experts. That is
// P(1 - C(E-E/P, k)/C(E, k)) when E divides by P.
func (p Placement) ExpectedCopies(topK int) float64 {
	visits := 0.0
	for r := range p.Size {
		miss := 1.0
		for i := range min(topK, p.NumExperts) {
			miss *= float64(max(0, p.NumExperts-p.NumLocal(r)-i)) / float64(p.NumExperts-i)
		}
		visits += 1 - miss
	}
	return visits
}
