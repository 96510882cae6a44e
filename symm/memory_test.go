package symm_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/symm"
)

// TestHeapShift turns addresses of one rank into another's, wherever the blocks are mapped, below or above.
func TestHeapShift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.IntRange(1, 1<<30).Draw(t, "bytes")
		address := rapid.Uint64Range(1<<20, 1<<47)
		own, base := uintptr(address.Draw(t, "own")), uintptr(address.Draw(t, "base"))
		h := symm.Heap{Bytes: bytes, Own: []uintptr{own}, Base: [][]uintptr{{base}}}
		offset := rapid.IntRange(0, bytes-1).Draw(t, "offset")
		require.Equal(t, base+uintptr(offset), own+uintptr(offset)+h.Shift(0, 0))
		require.True(t, h.Holds(0, own+uintptr(offset), bytes-offset))
		require.False(t, h.Holds(0, own+uintptr(offset), bytes-offset+1))
		require.False(t, h.Holds(0, own-1, 1))
		require.True(t, h.Holds(0, own+uintptr(bytes), 0))
		require.False(t, h.Holds(0, own+uintptr(bytes)+1, 0))
		require.False(t, h.Holds(0, own, -1))
	})
}

// TestGather lets three processes of two, one and three ranks exchange values.
func TestGather(t *testing.T) {
	store := rendezvous.NewMemory()
	var g errgroup.Group
	for first, n := range map[int]int{0: 2, 2: 1, 3: 3} {
		g.Go(func() error {
			job := symm.Job{Name: "job", Store: store, First: first, Size: 6, Devices: make([]comm.Device, n)}
			for rank := range 6 {
				require.Equal(t, rank >= first && rank < first+n, job.Here(rank))
			}
			for round := range 3 {
				mine := make([][]byte, n)
				for i := range mine {
					mine[i] = fmt.Append(nil, round, first+i)
				}
				all, err := job.Gather(t.Context(), "x", mine)
				if err != nil {
					return err
				}
				for rank, b := range all {
					require.Equal(t, fmt.Sprint(round, rank), string(b))
				}
			}
			_, err := job.Gather(t.Context(), "x", make([][]byte, n+1))
			require.ErrorContains(t, err, "values for")
			return nil
		})
	}
	require.NoError(t, g.Wait())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := symm.Job{Name: "alone", Store: store, Size: 2, Devices: make([]comm.Device, 1)}.Gather(ctx, "x", make([][]byte, 1))
	require.ErrorIs(t, err, comm.Timeout)
}
