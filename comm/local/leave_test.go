package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
)

// Ranks that give up and come again, at any moment: either all are in the same call or none is.
func TestLeaveAtAnyMoment(t *testing.T) {
	for _, ranks := range []int{2, 3, 5} {
		for _, led := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d led %v", ranks, led), func(t *testing.T) {
				procs := ranks
				if led {
					procs = ranks - 1
				}
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				w := open(t, ranks)
				commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
					leaveAndCome(ctx, tb, c)
				})
			})
		}
	}
}

func leaveAndCome(ctx context.Context, tb testing.TB, c *comm.Comm) {
	r := rand.New(rand.NewPCG(uint64(c.Rank()), 1))
	x, sum := comm.Of([]int64{0}, 1), comm.Of([]int64{0}, 1)
	for round := range 60 {
		var sub *comm.Comm
		for sub == nil {
			try, cancel := context.WithCancelCause(ctx)
			stop := time.AfterFunc(time.Duration(r.IntN(80))*time.Microsecond, func() { cancel(errors.New("too slow")) })
			var err error
			sub, err = c.Split(try, round%3, 0)
			stop.Stop()
			cancel(nil)
			if err != nil {
				require.ErrorIs(tb, err, comm.Aborted)
				require.ErrorContains(tb, err, "too slow")
			}
		}
		require.Equal(tb, c.Size(), sub.Size())
		comm.Row[int64](x, 0)[0] = int64(round)
		require.NoError(tb, c.AllReduce(comm.Stream{}, sum, x, comm.Sum))
		require.EqualValues(tb, round*c.Size(), comm.Row[int64](sum, 0)[0])
	}
}
