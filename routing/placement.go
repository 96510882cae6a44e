package routing

import "fmt"

// Placement says which rank owns which expert. The zero value but for NumExperts and Size is linear: contiguous blocks,
// where the first NumExperts mod Size ranks own one expert more. Every part of weft asks Placement and nothing else.
type Placement struct {
	NumExperts int  // logical experts, at least 1
	Size       int  // ranks, at least 1; may exceed NumExperts (then some ranks own none)
	RoundRobin bool // expert e lives on rank e mod Size instead of in blocks
	// Physical, when not nil, lists physical experts in rank order: Physical[p] is the logical expert of which p is a
	// replica. Every logical expert needs at least one. Physical experts are placed linearly or round-robin as above.
	Physical []int32
}

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
	e := p.PhysicalOf(rank, local)
	if p.Physical != nil {
		return int(p.Physical[e])
	}
	return e
}

// Owner returns the rank and local index of a logical expert: of its first replica when it has several.
func (p Placement) Owner(expert int) (rank, local int) {
	if p.Physical == nil {
		return p.OwnerOfPhysical(expert)
	}
	for e, l := range p.Physical {
		if int(l) == expert {
			return p.OwnerOfPhysical(e)
		}
	}
	panic(fmt.Sprintf("routing: expert %d has no replica; call Validate first", expert))
}
