package local

import (
	"context"

	"github.com/weftgo/weft/comm"
)

// Without opens a world of the ranks that are left. Goroutines of missing ranks may go on: they have the dead world alone.
func (c *conn) Without(_ context.Context, missing, _ []int) (*comm.World, error) {
	return Open(Config{Ranks: len(c.g.members) - len(missing), Timeout: c.g.timeout})
}

var _ comm.Reformer = (*conn)(nil)
