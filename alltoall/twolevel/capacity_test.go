package twolevel_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// Rows that do not fit a rank are dropped as on one node, and counted; with RankInvariant even the sums are one node's.
func TestDropAsOnOneNode(t *testing.T) {
	ran := 0
	for _, shape := range shapes() {
		size := shape[0] * shape[1]
		for i, limit := range []int{17, 25, 34, 42, 50} {
			cfg := ep.Config{NumExperts: 9, TopK: 4, Hidden: 21, DType: dtype.BF16, MaxRecvRows: limit, Overflow: ep.Drop, RankInvariant: true}
			j := newJob(cfg, uint64(i), 1, ragged(size, 17)...)
			for r := range j.ids {
				for c := 0; c < len(j.ids[r]); c += 4 {
					j.ids[r][c] = 0 // every token wants the first expert
				}
			}
			sent := make([]int, size) // by number in the node: the most that a relay gets. Where that fits, only ranks are full
			for r := range size {
				sent[r%shape[1]] += j.tokens[r]
			}
			if most(sent) > limit {
				continue
			}
			one, dropped := j.oneNode(t), int64(0)
			for rank, got := range j.between(t, shape[0]) {
				dropped += got.stats.DroppedCopies
				same(t, one[rank], got, rank)
				require.Equal(t, one[rank].out, got.out, "%v limit %d rank %d", shape, limit, rank)
				require.Equal(t, one[rank].stats.DroppedCopies, got.stats.DroppedCopies)
				require.Equal(t, one[rank].stats.NumCopies, got.stats.NumCopies)
			}
			if dropped > 0 {
				ran++
			}
		}
	}
	require.Greater(t, ran, 5, "cases that drop")
}

func most(list []int) (m int) {
	for _, n := range list {
		m = max(m, n)
	}
	return m
}

// What a rank cannot relay is dropped at the source, last in (source, token) order: plain loops say which rows those are.
func TestDropAtRelay(t *testing.T) {
	const numNodes, ranks, size = 3, 2, 6
	for seed := range uint64(20) {
		cfg := ep.Config{NumExperts: 14, TopK: 3, Hidden: 9, DType: dtype.BF16, MaxRecvRows: 7 + int(seed), Overflow: ep.Drop}
		j := newJob(cfg, seed, 0, ragged(size, 12)...)
		to := func(src, token, c int) int { // the rank of a choice, -1 for none
			if e := int(j.ids[src][token*3+c]); e < 14 {
				return owner(e, 14, size)
			}
			return -1
		}
		kept := map[[3]int]bool{} // (source, token, rank)
		for dst := range size {
			left := cfg.MaxRecvRows
			for src := range size {
				for token := range j.tokens[src] {
					for c := range 3 {
						if to(src, token, c) == dst && !kept[[3]int{src, token, dst}] && left > 0 {
							kept[[3]int{src, token, dst}] = true
							left--
						}
					}
				}
			}
		}
		for node := range numNodes {
			for local := range ranks {
				left := cfg.MaxRecvRows
				for src := local; src < size; src += ranks {
					for token := range j.tokens[src] {
						first, second := [3]int{src, token, node * ranks}, [3]int{src, token, node*ranks + 1}
						if !kept[first] && !kept[second] {
							continue
						}
						if left--; left < 0 {
							delete(kept, first)
							delete(kept, second)
						}
					}
				}
			}
		}
		for rank, got := range j.between(t, numNodes) {
			keep := func(token, dst int) bool { return kept[[3]int{rank, token, dst}] }
			require.Equal(t, j.want(numNodes, rank, keep), got.out, "seed %d rank %d", seed, rank)
			dropped := map[[2]int]bool{}
			for token := range j.tokens[rank] {
				for c := range 3 {
					if dst := to(rank, token, c); dst >= 0 && !keep(token, dst) {
						dropped[[2]int{token, dst}] = true
					}
				}
			}
			require.EqualValues(t, len(dropped), binary.LittleEndian.Uint32(got.got["dropped"][4:]), "seed %d rank %d", seed, rank)
			require.EqualValues(t, 2*len(dropped), got.stats.DroppedCopies)
			require.LessOrEqual(t, int(binary.LittleEndian.Uint32(got.got["rows"])), cfg.MaxRecvRows)
		}
	}
}

// With Fail a full rank, or a full relay, anywhere is an Invalid error on every rank of every node, no row moves, and the next
// call works.
func TestFailEverywhere(t *testing.T) {
	const numNodes, ranks = 2, 2
	full := func(tokens [4]int, expert func(token int) int32) job {
		j := newJob(ep.Config{NumExperts: 4, TopK: 1, Hidden: 3, DType: dtype.F32, MaxTokensPerRank: 8, MaxRecvRows: 10}, 1, 0, tokens[:]...)
		for r := range j.ids {
			for t := range j.ids[r] {
				j.ids[r][t] = expert(t)
			}
		}
		return j
	}
	good := full([4]int{2, 2, 2, 2}, func(t int) int32 { return int32(t) })
	for text, bad := range map[string]job{
		"dispatch: rank 3 would receive 16 rows > MaxRecvRows 10; raise it, or set Overflow to Drop": full([4]int{8, 0, 0, 8}, func(int) int32 { return 3 }),
		"dispatch: rank 0 would relay 16 rows > MaxRecvRows 10; raise it, or set Overflow to Drop":   full([4]int{8, 0, 8, 0}, func(t int) int32 { return int32(t % 2) }),
	} {
		w := open(t, numNodes, ranks, 0)
		require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
			x, err := create(ctx, c, bad.cfg)
			if err != nil {
				return err
			}
			for range 2 {
				o, err := bad.one(ctx, c.Rank(), x)
				require.NoError(t, err)
				var e *comm.Error
				require.ErrorAs(t, o.err, &e)
				require.Equal(t, c.Rank(), e.Rank)
				if e.Code != comm.Invalid || !strings.Contains(e.Error(), text) {
					return fmt.Errorf("rank %d: %w", c.Rank(), e)
				}
				if o, err = good.one(ctx, c.Rank(), x); err != nil || o.err != nil {
					return fmt.Errorf("the next call: %w, %w", err, o.err)
				}
				require.Equal(t, good.want(numNodes, c.Rank(), nil), o.out)
			}
			return nil
		}))
		require.NoError(t, w.Close(context.Background()))
	}
}

// A call that is wrong on one rank names that rank of the whole world on all others, in other nodes too.
func TestRefusalNamesRank(t *testing.T) {
	w := open(t, 2, 3, 0)
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := create(ctx, c, ep.Config{NumExperts: 6, TopK: 1, Hidden: 2, MaxTokensPerRank: 1})
		if err != nil {
			return err
		}
		n := 1
		if c.Rank() == 4 {
			n = 2
		}
		_, err = x.Dispatch(comm.Stream{}, comm.Of(make([]float32, 2*n), 2), ep.Routing{IDs: comm.Of(make([]int32, n), 1), Weights: comm.Of(make([]float32, n), 1)})
		var e *comm.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, c.Rank(), e.Rank)
		if c.Rank() != 4 && (e.Peer != 4 || e.Code != comm.Invalid) {
			return fmt.Errorf("rank %d: %w", c.Rank(), err)
		}
		return x.Close(ctx)
	}))
	require.NoError(t, w.Close(context.Background()))
}
