package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The workload through the server: the same answers, no hits when nobody shares, the postings when they do, and nearly all of a
// replay.
func TestHTTP(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.json")
	out, _, err := judge(t, "", "--requests", "8", "--concurrency", "4", "--layouts", "tp2", "--http", "--json", file)
	require.NoError(t, err, out)
	var got struct{ HTTP []httpRow }
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &got))
	require.Len(t, got.HTTP, 3)
	for i, r := range got.HTTP {
		require.Contains(t, out, r.Name)
		require.True(t, r.Same, r.Name)
		require.Equal(t, 1.0, r.Accuracy, r.Name)
		require.Positive(t, r.RequestsPerS)
		require.Equal(t, got.HTTP[0].PromptTokens, r.PromptTokens)
		if i > 0 {
			require.Greater(t, r.HitTokens, got.HTTP[i-1].HitTokens, r.Name)
		}
	}
	require.Zero(t, got.HTTP[0].HitTokens)
	require.Greater(t, float64(got.HTTP[2].HitTokens), 0.85*float64(got.HTTP[2].PromptTokens))
}

// On a terminal every bar must be filled, or the end waits for it.
func TestHTTPWithBars(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // is taken for a terminal
	require.NoError(t, err)
	defer null.Close()
	ended := make(chan error, 1)
	go func() {
		ended <- run(t.Context(), []string{"--requests", "4", "--layouts", "tp1", "--http"}, nil, io.Discard, null)
	}()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(5 * time.Minute): // 3 s of processor time under the race detector, 60 s of the clock beside 25 other processes
		require.Fail(t, "the judge does not end")
	}
}
