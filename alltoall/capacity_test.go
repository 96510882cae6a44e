package alltoall_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/ep"
)

const (
	capRanks  = 3
	capTokens = 4 // per rank
	capLimit  = 6 // rows a rank can receive
)

// capacity runs fn on three ranks that have four tokens each. Token t of a rank has value 10*rank+t+1, and expert e, which
// lives on rank e, adds 100*(e+1).
func capacity(t *testing.T, overflow ep.Overflow, fn func(c *comm.Comm, x *alltoall.Exchange, tokens comm.Buffer) error) {
	w, err := local.Open(local.Config{Ranks: capRanks})
	require.NoError(t, err)
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := alltoall.New(ctx, c, ep.Config{NumExperts: capRanks, TopK: 2, Hidden: 1, MaxTokensPerRank: capTokens,
			MaxRecvRows: capLimit, Overflow: overflow})
		if err != nil {
			return err
		}
		tokens := make([]float32, capTokens)
		for i := range tokens {
			tokens[i] = float32(10*c.Rank() + i + 1)
		}
		return fn(c, x, comm.Of(tokens, 1))
	}))
	require.NoError(t, w.Close(context.Background()))
}

// choose routes all tokens to two experts with weights 1 and 1000.
func choose(a, b int32) ep.Routing {
	var ids []int32
	var w []float32
	for range capTokens {
		ids, w = append(ids, a, b), append(w, 1, 1000)
	}
	return ep.Routing{IDs: comm.Of(ids, 2), Weights: comm.Of(w, 2)}
}

func finish(c *comm.Comm, x *alltoall.Exchange, r *ep.Received) ([]float32, error) {
	for e, span := range r.Experts(context.Background()) {
		name := x.Config().Placement.LogicalOf(c.Rank(), e)
		for s := span[0]; s < span[1]; s++ {
			row := comm.Row[int32](r.Index.Row, 0)[s]
			comm.Row[float32](r.Y, s)[0] = comm.Row[float32](r.X, int(row))[0] + float32(100*(name+1))
		}
	}
	out := make([]float32, capTokens)
	return out, x.Combine(comm.Stream{}, comm.Of(out, 1), r.Y, r)
}

func TestOverflowFailsOnAllRanks(t *testing.T) {
	capacity(t, ep.Fail, func(c *comm.Comm, x *alltoall.Exchange, tokens comm.Buffer) error {
		before := c.Stats()[comm.AllToAllV].Calls
		_, err := x.Dispatch(comm.Stream{}, tokens, choose(1, 1))
		want := "dispatch: rank 1 would receive 12 rows > MaxRecvRows 6"
		if !errors.Is(err, comm.Invalid) || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("rank %d: %v", c.Rank(), err)
		}
		if c.Stats()[comm.AllToAllV].Calls != before {
			return fmt.Errorf("rows were exchanged all the same")
		}
		// Four rows for each rank fit.
		r, err := x.Dispatch(comm.Stream{}, tokens, choose(int32(c.Rank()), int32(c.Rank())))
		if err != nil {
			return err
		}
		out, err := finish(c, x, r)
		for i, v := range out {
			if want := 1001 * float32(10*c.Rank()+i+1+100*(c.Rank()+1)); v != want {
				return fmt.Errorf("rank %d token %d: %v, want %v", c.Rank(), i, v, want)
			}
		}
		return err
	})
}

// Rank 1 would get 12 rows and takes 6: all of rank 0, two of rank 1, none of rank 2. What their
// tokens asked of other ranks arrives all the same.
func TestOverflowDropsTheLastRows(t *testing.T) {
	capacity(t, ep.Drop, func(c *comm.Comm, x *alltoall.Exchange, tokens comm.Buffer) error {
		me := c.Rank()
		other := int32(me) // rank 1 asks for its expert twice
		r, err := x.Dispatch(comm.Stream{}, tokens, choose(1, other))
		if err != nil {
			return err
		}
		dropped := append([]int32(nil), comm.Row[int32](r.Dropped, 0)...)
		if want := []int32{0, []int32{0, 2, 4}[me]}; dropped[0] != want[0] || dropped[1] != want[1] {
			return fmt.Errorf("rank %d dropped %v, want %v", me, dropped, want)
		}
		if me == 1 && r.X.Rows() != capLimit {
			return fmt.Errorf("rank 1 received %d rows", r.X.Rows())
		}
		out, err := finish(c, x, r)
		if err != nil {
			return err
		}
		kept := []int{4, 2, 0}[me]
		for i, v := range out {
			token := float32(10*me + i + 1)
			want := float32(0)
			if i < kept {
				want += token + 200
			}
			if i < kept || me != 1 {
				want += 1000 * (token + float32(100*(me+1)))
			}
			if v != want {
				return fmt.Errorf("rank %d token %d: %v, want %v", me, i, v, want)
			}
		}
		if n := x.Stats().DroppedCopies; n != int64(dropped[1]) {
			return fmt.Errorf("rank %d counted %d dropped copies", me, n)
		}
		return nil
	})
}
