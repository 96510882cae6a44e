package twolevel_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/nodes"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// Sums have the bits of the two-level order, and what is received is what one node's alltoall gives.
func TestTwoLevelOrder(t *testing.T) {
	for _, shape := range shapes() {
		size := shape[0] * shape[1]
		for i, dt := range []dtype.DType{dtype.F32, dtype.BF16, dtype.F16} {
			for _, output := range []ep.Output{ep.ExpertRows, ep.PartialRows} {
				cfg := ep.Config{NumExperts: 19, TopK: 6, Hidden: 37, DType: dt, Output: output, Layout: ep.Layout(i % 2), Alignment: 4 * i}
				j := newJob(cfg, uint64(i), i, ragged(size, 11)...)
				t.Run(fmt.Sprint(shape, j), func(t *testing.T) {
					one := j.oneNode(t)
					for rank, got := range j.between(t, shape[0]) {
						require.NoError(t, got.err)
						require.Equal(t, j.want(shape[0], rank, nil), got.out, "rank %d", rank)
						same(t, one[rank], got, rank)
					}
				})
			}
		}
	}
}

// The two-level order is not that of one node, so the test above tells them apart.
func TestOrderMatters(t *testing.T) {
	j := newJob(ep.Config{NumExperts: 19, TopK: 6, Hidden: 37, DType: dtype.BF16}, 1, 0, ragged(8, 11)...)
	require.NotEqual(t, j.want(2, 0, nil), j.want(1, 0, nil))
	require.NotEqual(t, j.want(2, 0, nil), j.want(4, 0, nil))
	require.NotEqual(t, j.oneNode(t)[0].out, j.want(2, 0, nil))
}

// With RankInvariant the bits are one node's on any input, whatever the nodes.
func TestRankInvariant(t *testing.T) {
	for _, shape := range shapes() {
		size := shape[0] * shape[1]
		for i, dt := range []dtype.DType{dtype.F32, dtype.BF16, dtype.F16, dtype.BF16} {
			cfg := ep.Config{NumExperts: 19, TopK: 6, Hidden: 137, DType: dt, RankInvariant: true, Layout: ep.Layout(i % 2), Alignment: 3}
			if i == 3 {
				cfg.Wire = dtype.F8E4M3
			}
			j := newJob(cfg, uint64(i), i%3, ragged(size, 9)...)
			t.Run(fmt.Sprint(shape, j), func(t *testing.T) {
				one := j.oneNode(t)
				for rank, got := range j.between(t, shape[0]) {
					require.Equal(t, one[rank].out, got.out, "rank %d", rank)
					same(t, one[rank], got, rank)
				}
			})
		}
	}
}

// Rows are quantised once: on an fp8 wire bytes and scales are those of one node.
func TestQuantisedOnce(t *testing.T) {
	for _, layout := range []ep.Layout{ep.Rows, ep.Expanded} {
		cfg := ep.Config{NumExperts: 13, TopK: 4, Hidden: 300, DType: dtype.BF16, Wire: dtype.F8E4M3, Layout: layout, Alignment: 8}
		j := newJob(cfg, 5, 1, ragged(6, 14)...)
		one := j.oneNode(t)
		for rank, got := range j.between(t, 3) {
			same(t, one[rank], got, rank)
			require.Contains(t, got.got, "scales")
		}
	}
}

// Counters and bytes between nodes are the routing's own: a row crosses once for each other node that has one of its experts.
func TestOnceANode(t *testing.T) {
	const numNodes, ranks = 3, 2
	j := newJob(ep.Config{NumExperts: 20, TopK: 5, Hidden: 64, DType: dtype.BF16}, 2, 0, ragged(numNodes*ranks, 40)...)
	w := open(t, numNodes, ranks, 0)
	for rank, got := range j.run(t, w, create) {
		copies, cross := 0, 0
		for token := range j.tokens[rank] {
			to := map[int]bool{}
			for _, e := range j.ids[rank][token*5 : (token+1)*5] {
				if int(e) < 20 {
					to[owner(int(e), 20, numNodes*ranks)/ranks] = true
				}
			}
			copies += len(to)
			if delete(to, rank/ranks); true {
				cross += len(to)
			}
		}
		require.EqualValues(t, 2*copies, got.stats.NumNodeCopies, "two dispatches of rank %d", rank)
		require.EqualValues(t, 2*cross, got.stats.NumCrossNodeCopies)
	}
	sent, crossing := int64(0), int64(0)
	for _, c := range w.Local() {
		_, between, _ := nodes.Levels(c)
		sent += between.Stats()[comm.AllToAllV].SentBytes
	}
	for _, got := range j.run(t, open(t, numNodes, ranks, 0), create) {
		crossing += got.stats.NumCrossNodeCopies
	}
	require.Equal(t, crossing*(64*2+5*8+64*2), sent, "a row with five codes and weights, and a row back")
}
