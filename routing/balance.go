package routing

import (
	"cmp"
	"fmt"
	"slices"
)

// maxBalanced bounds what Balance is asked for, far above any machine: beyond it the numbers are a mistake.
const maxBalanced = 1 << 16

// Balance returns a placement for measured loads: loads[e] is how many tokens chose expert e on all ranks, as ep.Stats.ExpertTokens
// counts them where the experts are. It gives out extra replicas beside the one that each expert has, always to the expert with the
// most load for each replica, then puts replicas on ranks, heaviest first, each on the rank with the least load that has room and not
// that expert yet. So ranks own as many replicas as in any Placement, and no rank has an expert twice. More replicas of an
// expert than ranks are of no use: those that would be are not given out, and NumPhysical says how many were.
//
// It is a pure function, so ranks that give it the same loads agree. Weights move where the placement changes; who moves them is the
// caller. Loads and extra may not be negative; no number of experts, ranks or extra replicas may exceed 65,536.
func Balance(loads []int64, size, extra int) (Placement, error) {
	switch {
	case len(loads) == 0 || size < 1:
		return Placement{}, fmt.Errorf("balance: %d experts on %d ranks; at least 1 of each is needed", len(loads), size)
	case len(loads) > maxBalanced || size > maxBalanced:
		return Placement{}, fmt.Errorf("balance: %d experts on %d ranks; at most %d of each", len(loads), size, maxBalanced)
	case extra < 0 || extra > maxBalanced:
		return Placement{}, fmt.Errorf("balance: %d extra replicas; it must be in [0, %d]", extra, maxBalanced)
	}
	for e, n := range loads {
		if n < 0 {
			return Placement{}, fmt.Errorf("balance: expert %d has a load of %d", e, n)
		}
	}
	replicas := spread(loads, size, extra)
	var list []replica
	for e, n := range replicas {
		for range n {
			list = append(list, replica{int32(e), float64(loads[e]) / float64(n)})
		}
	}
	p := Placement{NumExperts: len(loads), Size: size}
	for _, hand := range pack(list, size) {
		p.Physical = append(p.Physical, hand...)
	}
	return p, p.Validate()
}

// spread returns the number of replicas of each expert.
func spread(loads []int64, size, extra int) []int {
	replicas := make([]int, len(loads))
	for e := range replicas {
		replicas[e] = 1
	}
	for range extra {
		most := -1
		for e, n := range replicas {
			// loads[e]/n > loads[most]/replicas[most], without division; the first of equals
			if n < size && (most < 0 || float64(loads[e])*float64(replicas[most]) > float64(loads[most])*float64(n)) {
				most = e
			}
		}
		if most < 0 {
			break
		}
		replicas[most]++
	}
	return replicas
}

type replica struct {
	expert int32
	load   float64
}

// pack deals replicas to ranks, of which the first own the remainder.
func pack(list []replica, size int) [][]int32 {
	slices.SortStableFunc(list, func(a, b replica) int { return cmp.Compare(b.load, a.load) })
	h := hands{cards: make([][]replica, size), load: make([]float64, size), shape: Placement{NumExperts: len(list), Size: size}}
	for _, r := range list {
		best := -1
		for i := range size {
			if h.room(i) && !h.has(i, r) && (best < 0 || h.load[i] < h.load[best]) {
				best = i
			}
		}
		if best < 0 {
			best = h.makeRoom(r)
		}
		h.add(best, r)
	}
	experts := make([][]int32, size)
	for i, cards := range h.cards {
		for _, r := range cards {
			experts[i] = append(experts[i], r.expert)
		}
		slices.Sort(experts[i])
	}
	return experts
}

// hands is what each rank has been dealt.
type hands struct {
	cards [][]replica
	load  []float64
	shape Placement
}

func (h *hands) room(i int) bool { return len(h.cards[i]) < h.shape.NumLocal(i) }

func (h *hands) has(i int, r replica) bool {
	return slices.ContainsFunc(h.cards[i], func(c replica) bool { return c.expert == r.expert })
}

func (h *hands) add(i int, r replica) {
	h.cards[i] = append(h.cards[i], r)
	h.load[i] += r.load
}

// makeRoom moves a replica of a full rank without r's expert to one that has room, and returns the full one: where r then goes with
// the least load. There is one to move: all ranks with room have r's expert, so a full rank without it has no fewer replicas than a
// rank with room will have had before its last, and one of them is not there.
func (h *hands) makeRoom(r replica) int {
	from, to, card, least := -1, -1, -1, 0.0
	for i := range h.cards {
		if h.room(i) {
			for j := range h.cards {
				if h.room(j) || h.has(j, r) {
					continue
				}
				for k, c := range h.cards[j] {
					if worst := max(h.load[i]+c.load, h.load[j]-c.load+r.load); !h.has(i, c) && (from < 0 || worst < least) {
						from, to, card, least = j, i, k, worst
					}
				}
			}
		}
	}
	c := h.cards[from][card]
	h.cards[from] = slices.Delete(h.cards[from], card, card+1)
	h.load[from] -= c.load
	h.add(to, c)
	return from
}
