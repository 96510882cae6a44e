package twolevel

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// place is a rank, as the node and the number there that it was meant to have.
type place struct{ node, local int }

// levels opens a world for each list of ranks, nodes and columns, and returns each rank's two groups. Ranks of one list have their
// numbers in its order.
func levels(t *testing.T, timeout time.Duration, nodes, columns [][]place) (inside, between map[place]*comm.Comm) {
	inside, between = map[place]*comm.Comm{}, map[place]*comm.Comm{}
	for i, lists := range [][][]place{nodes, columns} {
		for _, list := range lists {
			w, err := local.Open(local.Config{Ranks: len(list), Timeout: timeout})
			require.NoError(t, err)
			t.Cleanup(func() { _ = w.Close(context.Background()) })
			for r, p := range list {
				[]map[place]*comm.Comm{inside, between}[i][p] = w.Local()[r]
			}
		}
	}
	return inside, between
}

// Groups that only some ranks see to be wrong are refused on all of them, of all nodes, and none waits for its deadline.
func TestWrongGroups(t *testing.T) {
	const timeout = 20 * time.Second
	for _, tc := range []struct {
		name           string
		nodes, columns [][]place
	}{
		{"a column of one node, which that node alone sees inside",
			[][]place{{{0, 0}, {0, 1}, {0, 2}}, {{1, 0}, {1, 1}}},
			[][]place{{{0, 0}, {1, 0}}, {{0, 1}, {1, 1}}, {{0, 2}}}},
		{"a column in another order, which the third node does not see",
			[][]place{{{0, 0}, {0, 1}}, {{1, 0}, {1, 1}}, {{2, 0}, {2, 1}}},
			[][]place{{{0, 0}, {1, 0}, {2, 0}}, {{1, 1}, {0, 1}, {2, 1}}}},
		{"a node in another order, which the first column does not see",
			[][]place{{{0, 0}, {0, 2}, {0, 1}}, {{1, 0}, {1, 1}, {1, 2}}},
			[][]place{{{0, 0}, {1, 0}}, {{0, 1}, {1, 1}}, {{0, 2}, {1, 2}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inside, between := levels(t, timeout, tc.nodes, tc.columns)
			errs, mu, wg, begin := map[place]error{}, sync.Mutex{}, sync.WaitGroup{}, time.Now()
			for p := range inside {
				wg.Go(func() {
					_, err := New(context.Background(), inside[p], between[p], ep.Config{NumExperts: 6, TopK: 1, Hidden: 4, MaxTokensPerRank: 2})
					mu.Lock()
					defer mu.Unlock()
					errs[p] = err
				})
			}
			wg.Wait()
			require.Less(t, time.Since(begin), timeout)
			for p, err := range errs {
				require.ErrorIs(t, err, comm.Invalid, "%v", p)
				require.ErrorContains(t, err, "rows and columns of one matrix", "%v", p)
			}
		})
	}
}

// counting is a level inside whose memory is counted. Its all_gather fails where fails is set.
type counting struct {
	comm.Conn
	held  int
	fails error
}

func (c *counting) Alloc(t dtype.DType, rows, cols int) (comm.Buffer, error) {
	c.held++
	return comm.Of(make([]int64, rows*cols), cols), nil
}

func (c *counting) Free(comm.Buffer) error {
	c.held--
	return nil
}

func (c *counting) Copy(comm.Stream, comm.Buffer, comm.Buffer) error { return nil }

func (c *counting) Do(s comm.Stream, op *comm.Op) error {
	if c.fails != nil {
		return c.fails
	}
	return c.Conn.Do(s, op)
}

// An all_gather over both levels keeps no memory, whether it works or fails at either level.
func TestGatherFrees(t *testing.T) {
	one := func() *comm.Comm {
		w, err := local.Open(local.Config{Ranks: 1})
		require.NoError(t, err)
		t.Cleanup(func() { _ = w.Close(context.Background()) })
		return w.Local()[0]
	}
	refused := comm.Errorf("all_gather", 0, comm.Invalid, "refused")
	for name, fails := range map[string][2]error{"works": {}, "inside": {refused, nil}, "between": {nil, refused}} {
		in, out := one(), one()
		inside, between := &counting{Conn: in.Conn(), fails: fails[0]}, &counting{Conn: out.Conn(), fails: fails[1]}
		g := newGrid(comm.New(inside, 0, 1), comm.New(between, 0, 1))
		all := make([]int64, 2)
		err := g.all.AllGather(comm.Stream{}, comm.Of(all, 2), comm.Of([]int64{3, 4}, 2))
		if name == "works" {
			require.NoError(t, err)
			require.Equal(t, []int64{3, 4}, all)
		} else {
			require.ErrorIs(t, err, comm.Invalid, name)
		}
		require.Zero(t, inside.held, name)
	}
}
