package moe

import (
	"fmt"
	"hash/fnv"

	"github.com/weftgo/weft/comm"
)

// agree checks that all ranks gave the same Config, and names the first that differs from rank 0.
func agree(c *comm.Comm, cfg Config, w Weights) error {
	cfg.Workspace = nil
	h := fnv.New32a()
	fmt.Fprintf(h, "%+v", cfg)
	h.Write(comm.Of(w.Router, 1).Bytes())
	h.Write(comm.Of(w.Bias, 1).Bytes())
	all := make([]int32, c.Size())
	own := []int32{int32(h.Sum32())}
	if err := c.AllGather(comm.Stream{}, comm.Of(all, 1), comm.Of(own, 1)); err != nil {
		return fmt.Errorf("moe: comparing the ranks' configurations: %w", err)
	}
	for r, x := range all {
		if x != all[0] {
			return fmt.Errorf("moe: ranks 0 and %d give different configurations or router weights; rank %d has %+v", r, c.Rank(), cfg)
		}
	}
	return nil
}
