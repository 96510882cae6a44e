package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	for _, c := range []struct{ ranks, tokens, layouts int }{{1, 3, 4}, {3, 20, 6}, {8, 5, 6}, {2, 0, 6}} {
		var out bytes.Buffer
		require.NoError(t, run(&out, c.ranks, c.tokens))
		require.Equal(t, c.layouts, strings.Count(out.String(), "largest difference to one rank"), out.String())
		require.Equal(t, c.ranks > 1, strings.Contains(out.String(), "exchanger alltoall"))
		require.Equal(t, c.ranks > 1, strings.Contains(out.String(), "rank 0: 2 collectives"))
	}
	require.ErrorContains(t, run(new(bytes.Buffer), 65, 1), "65 ranks")
}
