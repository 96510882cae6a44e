package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Rank 1 began its step a little later than rank 0, which waits for it: rank 1 is named, once it is late too, or rank 0 when
// rank 1 goes on beginning anew.
func TestStuckNamesWhoIsWaitedFor(t *testing.T) {
	models := []*rankModel{{}, {}}
	models[0].meets.Store(true)
	e := &Engine{cfg: Config{StepTimeout: time.Second}, models: []Model{models[0], models[1]}, work: make([]progress, 2)}
	begin := time.Now()
	for rank, later := range []time.Duration{0, time.Millisecond} {
		e.work[rank].begin(inForward)
		e.work[rank].since.Store(begin.Add(later).UnixNano())
	}
	require.NoError(t, e.stuck(begin.Add(999*time.Millisecond)))
	require.NoError(t, e.stuck(begin.Add(time.Second)), "only rank 0 is late, and it waits")
	require.ErrorContains(t, e.stuck(begin.Add(1001*time.Millisecond)), "step timeout 1s: rank 1 in forward for 1s")
	e.work[1].since.Store(begin.Add(1900 * time.Millisecond).UnixNano())
	require.NoError(t, e.stuck(begin.Add(1999*time.Millisecond)))
	require.ErrorContains(t, e.stuck(begin.Add(2*time.Second)), "rank 0 in forward, in a collective for 2s")
}
