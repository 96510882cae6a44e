package engine

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A request that fails with tokens unread gives them first, none of them marked as the last, and then the error.
func TestNextGivesTokensBeforeTheError(t *testing.T) {
	h := newHandle(nil, 1, Request{IDs: []int32{5}, MaxTokens: 9, Logprobs: -1}, nil, 0, 100)
	h.add(&result{sampled: true, token: 7}, "")
	dead := errors.New("rank 1 died")
	h.finish(FinishError, dead)
	e, err := h.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, Event{ID: 7}, e)
	_, err = h.Next(t.Context())
	require.ErrorIs(t, err, dead)
}
