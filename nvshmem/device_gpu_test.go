package nvshmem_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/nvshmem"
)

// putParams are the parameters of PutKernel.
type putParams struct {
	dst, src uintptr
	bytes    uint64
	signal   uintptr
	value    uint64
	pe       int32
}

// TestDeviceInitiated launches a kernel on each of four PEs that puts into its right neighbour's memory, with a signal.
func TestDeviceInitiated(t *testing.T) {
	pe, _ := start(t, 4, 0, 80*time.Second)
	if pe == nil {
		return
	}
	ctx := t.Context()
	begin := time.Now()
	m, err := pe.Load(nvshmem.PutKernel)
	require.NoError(t, err)
	t.Logf("measured: compile, link, load %v", time.Since(begin).Round(time.Millisecond))
	f, err := m.Function("put_signal")
	require.NoError(t, err)
	s, err := pe.Device().NewStream(0)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	src, err := pe.Malloc(ctx, 4*n)
	require.NoError(t, err)
	dst, err := pe.Malloc(ctx, 4*n)
	require.NoError(t, err)
	word, err := pe.Malloc(ctx, 8)
	require.NoError(t, err)
	require.NoError(t, s.Fill(word, 0, 8))
	write(t, s, src, pe.Rank())
	require.NoError(t, pe.BarrierAll(ctx))
	l := cuda.Linear(1, 1)
	require.NoError(t, cuda.Run(s, f, &l, &putParams{dst: dst, src: src, bytes: 4 * n, signal: word, value: 77, pe: int32((pe.Rank() + 1) % pe.Size())}))
	got := make([]uint64, 1)
	for start := time.Now(); got[0] != 77; {
		require.NoError(t, s.Wait(ctx))
		require.NoError(t, s.Download(cuda.Bytes(got), word))
		require.Less(t, time.Since(start), 20*time.Second, "the signal")
	}
	read(t, s, dst, (pe.Rank()+pe.Size()-1)%pe.Size(), "a put that the device began")
	t.Log("measured: the put and the signal arrived")
	require.NoError(t, pe.BarrierAll(ctx))
	require.NoError(t, m.Close())
	require.NoError(t, pe.Close(ctx))
}
