package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
)

// plain hides the optional powers of a store.
type plain struct{ Store }

func TestMemory(t *testing.T) { testStore(t, NewMemory()) }

// testStore is what every store must do.
func testStore(t *testing.T, s Store) {
	ctx := t.Context()
	value := []byte("one")
	require.NoError(t, s.Set(ctx, "a", value))
	value[0] = 'X'
	got, err := s.Get(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, "one", string(got), "Set keeps no reference")
	got[0] = 'X'
	got, err = s.Get(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, "one", string(got), "Get returns a copy")
	require.NoError(t, s.Set(ctx, "a", nil))
	got, err = s.Get(ctx, "a")
	require.NoError(t, err)
	require.Empty(t, got)

	for i, delta := range []int64{5, -7, 0, 1 << 62} {
		n, err := s.Add(ctx, "n", delta)
		require.NoError(t, err)
		require.Equal(t, []int64{5, -2, -2, 1<<62 - 2}[i], n)
	}
	_, err = s.Add(ctx, "n", 1<<62)
	require.NoError(t, err)
	_, err = s.Add(ctx, "n", 2)
	require.ErrorIs(t, err, comm.Invalid)
	got, err = s.Get(ctx, "n")
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(int64(1<<63-2)), string(got))
	_, err = s.Add(ctx, "a", 1)
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorContains(t, err, `store add "a"`)

	require.ErrorIs(t, s.Set(ctx, "", nil), comm.Invalid)
	require.ErrorIs(t, s.Set(ctx, string(make([]byte, 513)), nil), comm.Invalid)
	require.ErrorIs(t, s.Set(ctx, "big", make([]byte, 1<<20+1)), comm.Invalid)
	require.NoError(t, s.Set(ctx, "big", make([]byte, 1<<20)))

	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			got, err := s.Get(ctx, "late")
			require.NoError(t, err)
			require.Equal(t, "now", string(got))
		})
	}
	time.Sleep(time.Millisecond)
	require.NoError(t, s.Set(ctx, "late", []byte("now")))
	wg.Wait()

	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err = s.Get(short, "never")
	require.ErrorIs(t, err, comm.Timeout)
	require.ErrorContains(t, err, `store get "never"`)
	require.Regexp(t, "nobody has set it|no answer", err.Error(), "the latter from a store that is slower than the deadline")
	gone, stop := context.WithCancelCause(ctx)
	stop(errors.New("enough"))
	_, err = s.Get(gone, "never")
	require.ErrorIs(t, err, comm.Aborted)
	require.ErrorContains(t, err, "enough")
}

func TestExchange(t *testing.T) {
	for name, s := range map[string]Store{"gatherer": NewMemory(), "plain": plain{NewMemory()}} {
		t.Run(name, func(t *testing.T) { testExchange(t, func(int) Store { return s }) })
	}
}

// testExchange runs rounds of one name, and of two names at once, over ranks whose stores are of.
func testExchange(t *testing.T, of func(rank int) Store) {
	const size, rounds = 5, 20
	errs := make([]error, 2*size)
	var wg sync.WaitGroup
	for i := range 2 * size {
		wg.Go(func() {
			rank, name := i%size, fmt.Sprintf("name%d", i/size)
			for r := range rounds {
				mine := fmt.Sprintf("%s round %d rank %d", name, r, rank)
				if rank == 3 {
					mine = ""
				}
				all, err := Exchange(t.Context(), of(rank), name, rank, size, []byte(mine))
				if err != nil {
					errs[i] = err
					return
				}
				for from, v := range all {
					want := fmt.Sprintf("%s round %d rank %d", name, r, from)
					if from == 3 {
						want = ""
					}
					if string(v) != want {
						errs[i] = fmt.Errorf("rank %d got %q, want %q", rank, v, want)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
}

func TestExchangeNamesWhoDidNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for rank := range 2 {
			wg.Go(func() {
				_, err := Exchange(ctx, m, "ids", rank, 4, nil)
				require.ErrorIs(t, err, comm.Timeout)
				require.ErrorContains(t, err, fmt.Sprintf(`store exchange "ids": rank %d: timeout: waited for 2 of 4 ranks: 2, 3`, rank))
			})
		}
		wg.Wait()
		_, err := Exchange(t.Context(), m, "ids", 0, 3, nil)
		require.ErrorContains(t, err, "3 ranks here, but others said 4")
		_, err = Exchange(t.Context(), m, "ids", 4, 4, nil)
		require.ErrorIs(t, err, comm.Invalid)
	})
}

// Rounds that are over leave nothing behind, and the total is bounded.
func TestTableBytes(t *testing.T) {
	m := NewMemory()
	for i := range 100 {
		for range 2 {
			_, err := Exchange(t.Context(), m, fmt.Sprint("x", i), 0, 1, make([]byte, 1000))
			require.NoError(t, err)
		}
	}
	require.Empty(t, m.t.rounds)
	require.Zero(t, m.t.bytes)

	// A rank that is a round ahead keeps the name, and its count.
	quick := newTable(Limits{})
	done := 0
	for _, rank := range []int{0, 0, 1} {
		require.NoError(t, quick.gather("x", rank, 2, []byte{1}, &waiter{done: func([][]byte) { done++ }}))
	}
	require.Equal(t, 2, done)
	require.Len(t, quick.rounds["x"].open, 1)
	require.NoError(t, quick.gather("x", 1, 2, nil, &waiter{done: func([][]byte) { done++ }}))
	require.Equal(t, 4, done)
	require.Zero(t, quick.bytes)

	// Rounds that nobody joins are bounded, too.
	w := func() *waiter { return &waiter{done: func([][]byte) {}} }
	rounds := newTable(Limits{TotalBytes: 1 << 20})
	n := 0
	for ; rounds.gather("x", 0, 1000, nil, w()) == nil; n++ {
		require.Less(t, n, 1000)
	}
	require.Equal(t, 16, n, "64000 bytes each")

	small := newTable(Limits{TotalBytes: 1000})
	require.NoError(t, small.set("a", make([]byte, 500)))
	require.NoError(t, small.set("a", make([]byte, 900)), "what it replaces is free")
	require.ErrorIs(t, small.set("b", make([]byte, 100)), comm.Invalid)
	require.NoError(t, small.set("a", nil))
	require.NoError(t, small.set("b", make([]byte, 100)))
}
