package routing

import (
	"fmt"
	"slices"
)

// Without returns the placement of the ranks that are left when those in missing are gone. The survivors are numbered anew in
// their order, and each keeps its experts in their order: rank r of the new placement holds what the r-th survivor held, so
// weights need not move. Experts with a replica on a survivor are served there. The others have no place any more
// (AllowMissing is then set): their ids are dropped and counted.
//
//	Placement{NumExperts: 6, Size: 3}.Without(1):   rank 0 {0, 1}   (rank 1 {2, 3} is gone)   rank 2 -> 1 {4, 5}
//
// missing may be in any order. It is an error to name a rank twice, one outside [0, Size), or all of them.
func (p Placement) Without(missing ...int) (Placement, error) {
	if err := p.Validate(); err != nil {
		return Placement{}, err
	}
	gone := make([]bool, p.Size)
	for _, r := range missing {
		switch {
		case r < 0 || r >= p.Size:
			return Placement{}, fmt.Errorf("placement: rank %d cannot be missing: the ranks are [0, %d)", r, p.Size)
		case gone[r]:
			return Placement{}, fmt.Errorf("placement: rank %d is named twice among the missing ranks %v", r, missing)
		}
		gone[r] = true
	}
	if len(missing) == p.Size {
		return Placement{}, fmt.Errorf("placement: all %d ranks are missing", p.Size)
	}
	// The first ranks own the remainder, so the first survivors do: what is left of the list, dealt to the survivors as the
	// whole was dealt to all, gives each the same hand.
	left := make([]int32, 0, p.NumPhysical())
	for e := range p.NumPhysical() {
		if rank, _ := p.OwnerOfPhysical(e); !gone[rank] {
			left = append(left, int32(p.logicalOf(e)))
		}
	}
	if len(missing) > 0 {
		p.Physical, p.Size = left, p.Size-len(missing)
		p.AllowMissing = p.AllowMissing || len(p.Missing()) > 0
	}
	return p, nil
}

// Survivors lists the ranks of [0, size) that are not in missing, in order: rank i of what is left was rank Survivors[i].
func Survivors(size int, missing ...int) []int {
	list := make([]int, 0, max(size, 0))
	for r := range size {
		if !slices.Contains(missing, r) {
			list = append(list, r)
		}
	}
	return list
}

// Missing lists the experts without a place, in order; nil when every expert has one.
func (p Placement) Missing() []int {
	if p.Physical == nil {
		return nil
	}
	seen := make([]bool, p.NumExperts)
	for _, e := range p.Physical {
		seen[e] = true
	}
	var list []int
	for e, ok := range seen {
		if !ok {
			list = append(list, e)
		}
	}
	return list
}
