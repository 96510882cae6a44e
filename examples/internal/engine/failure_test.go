package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/examples/internal/batch"
)

// A rank that fails in any way ends every request with an error that names it, and later ones are refused with the same.
func TestRankFailureEndsAllRequests(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(stalled chan struct{}) error
		text   string
	}{
		"panics": {func(chan struct{}) error { panic("kernel fell over") }, "kernel fell over"},
		"errors": {func(chan struct{}) error { return errors.New("out of memory") }, "out of memory"},
		"stalls": {func(stalled chan struct{}) error { <-stalled; return errors.New("too late") }, "timeout"},
	} {
		for _, l := range []layout{{"tp2", 2, 1}, {"dp2tp2", 2, 2}, {"dp8", 1, 8}} {
			for _, rank := range []int{0, l.tp*l.dp - 1} {
				t.Run(fmt.Sprintf("%s/%s/rank%d", name, l.name, rank), func(t *testing.T) {
					// In a bubble no rank is late because the machine is.
					synctest.Test(t, func(t *testing.T) { failOneRank(t, l, rank, tt.before, tt.text) })
				})
			}
		}
	}
}

// failOneRank lets a rank call before in its third step, and wants text in the error of every request.
func failOneRank(t *testing.T, l layout, rank int, before func(stalled chan struct{}) error, text string) {
	steps, stalled := 0, make(chan struct{})
	r := start(t, config(l), 200*time.Millisecond, func(i int, m *rankModel) {
		if i == rank {
			m.before = func(b *batch.Batch) error {
				if steps++; steps == 3 {
					return before(stalled)
				}
				return nil
			}
		}
	})
	begun := time.Now()
	var hs []*Handle
	for i := range 12 {
		h, err := r.Submit(t.Context(), Request{IDs: prompt(i, 20), MaxTokens: 30, IgnoreEOS: true})
		if err != nil { // it has died already
			require.ErrorIs(t, err, ErrDead)
			break
		}
		hs = append(hs, h)
	}
	for _, h := range hs {
		out, err := h.Wait(t.Context())
		require.ErrorIs(t, err, ErrDead)
		require.ErrorContains(t, err, fmt.Sprintf("rank %d", rank))
		require.ErrorContains(t, err, text)
		require.Equal(t, FinishError, out.Reason)
	}
	require.Less(t, time.Since(begun), 5*time.Second)
	_, err := r.Submit(t.Context(), Request{IDs: prompt(1, 2), MaxTokens: 1})
	require.ErrorIs(t, err, ErrDead)
	require.ErrorContains(t, err, fmt.Sprintf("rank %d", rank))
	require.ErrorIs(t, r.Close(t.Context()), ErrDead)
	require.Zero(t, r.Stats().Total().KVUsed)
	close(stalled)
	<-r.Done()
}

// Where no collective times out, the step timeout names the rank that is stuck, and only that one: the others wait for it in a
// collective.
func TestStepTimeout(t *testing.T) {
	for _, l := range []layout{{"tp1", 1, 1}, {"tp2", 2, 1}, {"dp2tp2", 2, 2}, {"dp8", 1, 8}} {
		synctest.Test(t, func(t *testing.T) {
			stalled := make(chan struct{})
			last := l.tp*l.dp - 1
			cfg := config(l)
			cfg.StepTimeout = 10 * time.Second
			r := start(t, cfg, time.Hour, func(rank int, m *rankModel) {
				m.before = func(*batch.Batch) error {
					if rank == last {
						<-stalled
					}
					return nil
				}
			})
			begun := time.Now()
			h, err := r.Submit(t.Context(), Request{IDs: prompt(1, 20), MaxTokens: 3})
			require.NoError(t, err)
			_, err = h.Wait(t.Context())
			require.ErrorIs(t, err, ErrDead)
			require.ErrorIs(t, err, comm.Timeout)
			require.ErrorContains(t, err, fmt.Sprintf("step timeout 10s: rank %d in forward for", last))
			require.NotRegexp(t, "rank [0-9]+ .*rank [0-9]+ in", err.Error())
			var e *comm.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, last, e.Rank)
			require.LessOrEqual(t, time.Since(begun), 13*time.Second)
			close(stalled)
			<-r.Done()
		})
	}
}

func TestWorldAbortedFromOutsideWhileAsleep(t *testing.T) {
	r := start(t, config(layouts[2]), time.Minute)
	r.world.Abort(errors.New("the node is going down"))
	<-r.Done()
	_, err := r.Submit(t.Context(), Request{IDs: prompt(1, 2), MaxTokens: 1})
	require.ErrorIs(t, err, ErrDead)
	require.ErrorContains(t, err, "the node is going down")
}

func TestWrongNumberOfLogits(t *testing.T) {
	r := start(t, config(layouts[0]), time.Second, func(_ int, m *rankModel) {
		m.after = func(logits []float32) []float32 { return logits[1:] }
	})
	h, err := r.Submit(t.Context(), Request{IDs: prompt(1, 2), MaxTokens: 1})
	require.NoError(t, err)
	_, err = h.Wait(t.Context())
	require.ErrorIs(t, err, ErrDead)
	require.ErrorContains(t, err, "execute_context_1(2)_generation_0(0) returned 12 logits; 1 rows of a vocabulary of 13 are 13")
	<-r.Done()
}

func TestCloseDrains(t *testing.T) {
	cfg := config(layouts[3])
	r := start(t, cfg, 10*time.Second)
	req := Request{IDs: prompt(1, 30), MaxTokens: 20, IgnoreEOS: true}
	var hs []*Handle
	for range 12 {
		h, err := r.Submit(t.Context(), req)
		require.NoError(t, err)
		hs = append(hs, h)
	}
	r.close(t)
	ids, _ := want(&req, &cfg)
	for _, h := range hs {
		out, err := h.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, ids, out.IDs)
	}
	require.NoError(t, r.Close(t.Context()), "again")
}

func TestCloseGivesUp(t *testing.T) {
	in := make(chan struct{})
	stalled := make(chan struct{})
	r := start(t, config(layouts[3]), time.Minute, func(rank int, m *rankModel) {
		m.before = func(*batch.Batch) error {
			if rank == 2 {
				close(in)
				<-stalled
			}
			return nil
		}
	})
	h, err := r.Submit(t.Context(), Request{IDs: prompt(1, 30), MaxTokens: 20})
	require.NoError(t, err)
	<-in
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.Close(ctx), ErrClosed)
	_, err = h.Wait(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	require.Error(t, r.world.Err())
	close(stalled)
	<-r.Done()
}
