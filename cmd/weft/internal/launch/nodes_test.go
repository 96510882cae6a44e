//go:build unix

package launch

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// nodes runs one launcher a node.
func nodes(t *testing.T, n int, grace time.Duration, mode string, more ...string) (codes []int, out, errs []*buffer) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	codes, out, errs = make([]int, n), make([]*buffer, n), make([]*buffer, n)
	var wg sync.WaitGroup
	for node := range n {
		var cfg Config
		cfg, out[node], errs[node] = config(2, mode, more...)
		cfg.Nodes, cfg.Node, cfg.Store, cfg.Token, cfg.Grace = n, node, addr, "shared", grace
		wg.Go(func() {
			var err error
			codes[node], err = Run(t.Context(), cfg, nil)
			require.NoError(t, err)
		})
	}
	wg.Wait()
	return codes, out, errs
}

func TestSeveralNodes(t *testing.T) {
	codes, out, errs := nodes(t, 2, 10*time.Second, "store")
	require.Equal(t, []int{0, 0}, codes, "%v %v", errs[0], errs[1])
	require.Contains(t, out[1].String(), "[2] all here")
	require.Contains(t, out[1].String(), "[3] all here")

	codes, out, _ = nodes(t, 2, 10*time.Second, "environment")
	require.Equal(t, []int{0, 0}, codes)
	require.Contains(t, out[1].String(), "[3] 3 4 1 2 3 4 1 2 1 127.0.0.1 true true true\n")

	// A rank that dies on one node ends the ranks of the other, which do not use the store.
	codes, _, errs = nodes(t, 2, 300*time.Millisecond, "fail")
	require.Equal(t, 7, codes[0])
	require.NotZero(t, codes[1])
	require.Contains(t, errs[1].String(), "rank 1 (pid")
	require.Contains(t, errs[1].String(), "exited with code 7")
}

// A rank that is killed on node 1 is named on both nodes, by the store and by both launchers.
func TestRankDiesOnAnotherNode(t *testing.T) {
	for _, end := range []string{"killed", "exit"} {
		codes, out, errs := nodes(t, 2, 10*time.Second, "store", "WEFT_TEST_END="+end, "WEFT_TEST_VICTIM=3")
		require.Equal(t, map[string]int{"killed": 137, "exit": 5}[end], codes[1])
		require.NotZero(t, codes[0])
		for rank := range 3 {
			require.Regexp(t, fmt.Sprintf(`\[%d\] survivor: store get "never": rank %d: remote \(rank 3\)`, rank, rank), out[rank/2].String())
		}
		require.Regexp(t, `weft launch: rank 3 \(pid \d+\)`, errs[1].String())
		require.Contains(t, errs[0].String(), "weft launch: rank")
	}
}

// A node that cannot start its processes ends those of the others, which would wait for them.
func TestNodeCannotStart(t *testing.T) {
	for broken := range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		var wg sync.WaitGroup
		errs, codes, said := [2]error{}, [2]int{}, [2]*buffer{}
		start := time.Now()
		for node := range 2 {
			var cfg Config
			cfg, _, said[node] = config(2, "graceful")
			cfg.Nodes, cfg.Node, cfg.Store, cfg.Token, cfg.Grace = 2, node, l.Addr().String(), "shared", time.Second
			if node == broken {
				cfg.Command = []string{"/does/not/exist"}
			}
			wg.Go(func() { codes[node], errs[node] = Run(t.Context(), cfg, nil) })
		}
		wg.Wait()
		require.Less(t, time.Since(start), 20*time.Second)
		require.ErrorContains(t, errs[broken], "start /does/not/exist")
		require.NoError(t, errs[1-broken])
		require.NotZero(t, codes[1-broken])
		require.Contains(t, said[1-broken].String(), fmt.Sprintf("the launcher of node %d could not start its processes", broken))
	}
}
