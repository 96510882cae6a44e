package p2p

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/turnstile"
)

// hold lets a rank enqueue everything before any of it begins: no rank's time includes the host's. Its methods do nothing on
// a nil hold.
type hold struct {
	r    *rank
	word uintptr // in device memory
	all  *turnstile.Turnstile
	rep  uint32
}

// begin makes the stream wait, then line up with the other ranks.
func (h *hold) begin(c *comm.Comm, s *cuda.Stream) error {
	if h == nil {
		return nil
	}
	h.rep++
	return errors.Join(s.WaitValue(h.word, h.rep), c.Barrier(comm.Stream{Handle: s.Handle()}))
}

// end releases the stream when all ranks have enqueued.
func (h *hold) end() error {
	if h == nil {
		return nil
	}
	h.all.Pass()
	return h.r.gpu.aside(func(s *cuda.Stream) error { return s.WriteValue(h.word, h.rep) })
}

// between returns the median device time of fn, in microseconds.
func between(t testing.TB, d *cuda.Device, c *comm.Comm, s *cuda.Stream, reps int, h *hold, fn func() error) float64 {
	first, err := d.NewEvent(true)
	require.NoError(t, err)
	last, err := d.NewEvent(true)
	require.NoError(t, err)
	var us []float64
	for range reps + 2 {
		require.NoError(t, h.begin(c, s))
		require.NoError(t, first.Record(s))
		require.NoError(t, fn())
		require.NoError(t, last.Record(s))
		require.NoError(t, h.end())
		require.NoError(t, last.Wait(context.Background()))
		e, err := last.Since(first)
		require.NoError(t, err)
		us = append(us, float64(e)/1e3)
	}
	require.NoError(t, first.Close())
	require.NoError(t, last.Close())
	us = us[2:]
	slices.Sort(us)
	return us[len(us)/2]
}
