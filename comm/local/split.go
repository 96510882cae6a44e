package local

import (
	"cmp"
	"context"
	"slices"

	"github.com/weftgo/weft/comm"
)

// Split is collective. ctx ends the wait of this rank; after an expired deadline the world is dead.
func (c *conn) Split(ctx context.Context, color, key int) (comm.Conn, int, int, error) {
	m := c.g.all
	s := &m.seats[c.rank]
	if c.closed.Load() {
		return nil, 0, 0, comm.Errorf("split", s.rank, comm.Invalid, "the comm is closed")
	}
	call := &s.calls[s.turn]
	call.publishSplit(color, key)
	var stats comm.OpStats
	err := m.run(ctx, c.rank, call, &stats)
	call.forget()
	if err != nil {
		return nil, 0, 0, err
	}
	if color < 0 {
		return nil, 0, 0, nil
	}
	g := m.plan.groups[color]
	rank := slices.Index(g.members, s.rank)
	return &conn{g: g, rank: rank}, rank, len(g.members), nil
}

// planSplit makes the new groups.
func (m *meeting) planSplit(turn int) {
	order := make([]int, len(m.seats))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(m.seats[i].calls[turn].key, m.seats[j].calls[turn].key)
	})
	members := map[int][]int{}
	for _, i := range order {
		if color := m.seats[i].calls[turn].color; color >= 0 {
			members[color] = append(members[color], m.seats[i].rank)
		}
	}
	m.plan.groups = make(map[int]*group, len(members))
	for color, ranks := range members {
		m.plan.groups[color] = newGroup(ranks, m.timeout, m.life)
	}
}
