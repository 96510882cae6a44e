package moe

import (
	"fmt"
	"hash/fnv"

	"github.com/weftgo/weft/comm"
)

// agree is collective: it checks that all ranks gave the same Config and router weights, and names the first that differs
// from the first rank. A rank that has refused its own arguments passes why, and then no rank goes on.
func agree(c *comm.Comm, cfg Config, w Weights, refused error) error {
	cfg.Workspace = nil
	h := fnv.New32a()
	fmt.Fprintf(h, "%+v", cfg)
	own := []int32{int32(c.WorldRank()), 0, 1}
	if refused == nil {
		h.Write(comm.Of(w.Router, 1).Bytes())
		h.Write(comm.Of(w.Bias, 1).Bytes())
		own[1], own[2] = int32(h.Sum32()), 0
	}
	all := make([]int32, 3*c.Size())
	if err := c.AllGather(comm.Stream{}, comm.Of(all, 3), comm.Of(own, 3)); err != nil {
		return fmt.Errorf("moe: comparing the ranks' configurations: %w", err)
	}
	if refused != nil {
		return invalid(c, comm.NoPeer, refused)
	}
	for r := range c.Size() {
		switch x := all[3*r : 3*r+3]; {
		case x[2] != 0:
			return invalid(c, int(x[0]), fmt.Errorf("moe: rank %d has refused its arguments; its error says why", x[0]))
		case x[1] != all[1]:
			return invalid(c, int(x[0]), fmt.Errorf("moe: ranks %d and %d give different configurations or router weights; rank %d has %+v",
				all[0], x[0], c.WorldRank(), cfg))
		}
	}
	return nil
}

func invalid(c *comm.Comm, peer int, err error) error {
	return &comm.Error{Op: "new moe layer", Rank: c.WorldRank(), Peer: peer, Code: comm.Invalid, Err: err}
}
