package commtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// splits tries groups of ranks.
func (s *suite) splits(t *testing.T) {
	t.Run("colors and keys", s.colors)
	t.Run("nested", s.nested)
	t.Run("die with the world", s.groupsDie)
	t.Run("mismatch", func(t *testing.T) {
		w := s.world(t, 3)
		s.allInvalid(t, w, func(tb testing.TB, c *comm.Comm) error {
			if c.Rank() == 1 {
				return c.Barrier(comm.Stream{})
			}
			_, err := c.Split(tb.Context(), 0, 0)
			return err
		}, "rank 0 calls split", "rank 1 calls barrier")
	})
}

// group checks that a collective works in a group.
func group(tb testing.TB, c *comm.Comm) {
	for _, k := range kinds {
		x := trial{kind: k, types: []dtype.DType{dtype.F32}, cols: 5, counts: uniform(c.Size(), 3)}
		_, err := x.pose().try(tb, c)
		require.NoError(tb, err, "%v in a group of %d", x, c.Size())
	}
}

func (s *suite) colors(t *testing.T) {
	ranks := s.most()
	w := s.world(t, ranks)
	Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		color := c.Rank() % 3
		if color == 2 {
			color = -1
		}
		sub, err := c.Split(ctx, color, -c.Rank()) // reversed
		require.NoError(tb, err)
		if color < 0 {
			require.Nil(tb, sub)
		} else {
			size := (ranks - color + 2) / 3
			require.Equal(tb, size, sub.Size())
			require.Equal(tb, size-1-c.Rank()/3, sub.Rank())
			require.Equal(tb, c.Rank(), sub.WorldRank())
			require.Same(tb, w, sub.World())
			group(tb, sub)
			require.NoError(tb, sub.Close(ctx))
		}
		equal, err := c.Split(ctx, 7, 1) // equal keys: by rank
		require.NoError(tb, err)
		require.Equal(tb, c.Rank(), equal.Rank())
		group(tb, equal)
		require.NoError(tb, host(ctx, c))
		require.NoError(tb, equal.Close(ctx))
	})
}

func (s *suite) nested(t *testing.T) {
	w := s.world(t, 8)
	Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		half, err := c.Split(ctx, c.Rank()/4, c.Rank())
		require.NoError(tb, err)
		pair, err := half.Split(ctx, half.Rank()%2, half.Rank())
		require.NoError(tb, err)
		require.Equal(tb, 2, pair.Size())
		for range 20 { // groups of different sizes in turn
			for _, g := range []*comm.Comm{pair, c, half} {
				x := trial{kind: comm.AllReduce, types: []dtype.DType{dtype.I32}, cols: 6, counts: uniform(g.Size(), 4)}
				_, err := x.pose().try(tb, g)
				require.NoError(tb, err)
			}
		}
		if pair.Rank() == 0 { // an error in a group names ranks of the world
			_, err = pair.Split(ctx, 0, 0)
		} else {
			err = host(ctx, pair)
		}
		var e *comm.Error
		require.ErrorAs(tb, err, &e)
		require.ErrorIs(tb, err, comm.Invalid)
		require.Equal(tb, c.Rank(), e.Rank)
		require.Equal(tb, c.Rank()^2, e.Peer)
	})
}

func (s *suite) groupsDie(t *testing.T) {
	w := s.world(t, 4)
	var errs [4]error
	cause := comm.Errorf("test", 3, comm.Internal, "on purpose")
	_ = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		sub, err := c.Split(ctx, c.Rank()/2, 0)
		if err != nil {
			return err
		}
		switch c.Rank() {
		case 3:
			time.Sleep(10 * time.Millisecond)
			return cause
		case 2: // waits for rank 3
			errs[2] = host(ctx, sub)
		default: // a group of its own, which nothing is wrong with
			for errs[c.Rank()] == nil {
				errs[c.Rank()] = host(ctx, sub)
			}
		}
		return nil
	})
	for rank, err := range errs[:3] {
		requireAborted(t, err, rank, 3)
		require.ErrorIs(t, err, cause)
	}
}
