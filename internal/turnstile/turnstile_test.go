package turnstile_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/internal/turnstile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Nobody gets through before all have come, round after round.
func TestRounds(t *testing.T) {
	const num, rounds = 5, 200
	all := turnstile.New(num)
	var at [num]int
	var wrong [num]error
	var done sync.WaitGroup
	for g := range num {
		done.Go(func() {
			for i := range rounds {
				at[g] = i
				all.Pass()
				for other, v := range at {
					if v != i {
						wrong[g] = fmt.Errorf("round %d: goroutine %d is at %d", i, other, v)
					}
				}
				all.Pass()
			}
		})
	}
	done.Wait()
	require.NoError(t, errors.Join(wrong[:]...))
}

// A goroutine that waits in vain leaves when its ctx ends.
func TestEnds(t *testing.T) {
	cause := errors.New("rank 1 failed")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	require.ErrorIs(t, turnstile.New(2).Wait(ctx), cause)
}

func ExampleTurnstile() {
	all := turnstile.New(2)
	ready := false
	go func() {
		ready = true
		all.Pass()
	}()
	all.Pass()
	fmt.Println(ready)
	// Output: true
}
