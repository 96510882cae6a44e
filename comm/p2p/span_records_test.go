//go:build linux && cgo

package p2p

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/kernels"
	"github.com/weftgo/weft/internal/proctest"
)

// leaveRecord writes a record as a kernel of the rank would: where its tables say.
func (c *conn) leaveRecord(rec kernels.Record) {
	ctl := at[kernels.Ctl](c.ctl)
	records := at[[kernels.NumRecords]kernels.Record](uintptr(ctl.Records))
	rec.Group, rec.Seq = ctl.Group, c.r.next
	records[rec.Seq%kernels.NumRecords] = rec
}

// TestSpanRecords leaves the records that kernels leave in two processes of two ranks, and reads the errors.
func TestSpanRecords(t *testing.T) {
	store, r := proctest.Run(t, proctest.Config{Processes: 2, Env: fakes(t)})
	if r != nil {
		return
	}
	w, err := Open(t.Context(), spanConfig(store, 2))
	require.NoError(t, err)
	require.NoError(t, each(w, func(c *comm.Comm) error {
		x, err := comm.Alloc(c, dtype.F32, 4, 5)
		require.NoError(t, err)

		if c.Rank() == 3 {
			err = c.Broadcast(comm.Stream{}, x, 1)
		} else {
			err = c.AllReduce(comm.Stream{}, x, x, comm.Max)
		}
		require.NoError(t, err)
		cc := c.Conn().(*conn)
		meetAll(t, store, cc, "called") // as kernels do
		cc.leaveRecord(kernels.Record{Why: kernels.Disagree, Call: 1, A: 0, B: 3, EpochSeen: 1, OtherCall: 1})
		err = c.Wait(t.Context(), comm.Stream{})
		require.ErrorIs(t, err, comm.Invalid)
		require.ErrorContains(t, err, "ranks disagree: rank 0 calls all_reduce")
		require.ErrorContains(t, err, "rank 3 calls broadcast")
		meetAll(t, store, cc, "disagreed")
		return nil
	}))
	// Rank 1 gives up waiting for rank 3 and raises the abort words; ranks 0 and 2 see the word.
	start := time.Now()
	require.NoError(t, each(w, func(c *comm.Comm) error {
		cc := c.Conn().(*conn)
		if c.Rank() != 3 {
			require.NoError(t, c.Barrier(comm.Stream{}))
		}
		rec := kernels.Record{Why: kernels.Aborted, Call: 2, Missing: 1 << 3, By: 2}
		if c.Rank() == 1 {
			rec.Why, rec.By = kernels.Timeout, 0
		}
		if c.Rank() == 1 { // the record is there before the abort words
			cc.leaveRecord(rec)
		}
		meetAll(t, store, cc, "three of four came")
		switch c.Rank() {
		case 3:
			return nil
		case 0, 2:
			cc.leaveRecord(rec)
		}
		err := c.Wait(t.Context(), comm.Stream{})
		require.ErrorContains(t, err, "rank 3", "rank %d", c.Rank())
		switch c.Rank() {
		case 1:
			require.ErrorIs(t, err, comm.Timeout)
			w.Abort(err)
		case 2:
			require.ErrorIs(t, err, comm.Aborted)
			require.ErrorContains(t, err, "(in another process)")
		}
		return nil
	}))
	<-w.Done()
	require.Less(t, time.Since(start), 5*time.Second)
	_ = w.Close(t.Context())
}
