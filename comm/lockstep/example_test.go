package lockstep_test

import (
	"context"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/comm/lockstep"
)

// Four data-parallel ranks, of which rank 2 has one piece of work. All of them run that step, and all of them stop in the
// same step.
func Example() {
	ctx := context.Background()
	world, err := local.Open(local.Config{Ranks: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		l, err := lockstep.New(c, lockstep.Config{})
		if err != nil {
			return err
		}
		work := 0
		if c.Rank() == 2 {
			work = 5
		}
		for {
			a, err := l.Agree(ctx, lockstep.Record{Tokens: work, Stop: c.Rank() == 2 && work == 0})
			if err != nil {
				return err
			}
			if c.Rank() == 0 {
				fmt.Println(a.Decision, a.Tokens, "balanced:", a.Balanced)
			}
			if a.Decision == lockstep.Stop {
				return nil
			}
			work = 0 // forward pass here, on ranks 0, 1 and 3 with an empty batch
		}
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// run [0 0 5 0] balanced: false
	// stop [0 0 0 0] balanced: true
}
