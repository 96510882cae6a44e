package main

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
)

func Example() {
	for _, ranks := range []int{1, 8, 64} {
		if err := run(context.Background(), os.Stdout, ranks, -1); err != nil {
			panic(err)
		}
	}
	// Output:
	// 1 ranks, the sum of {1, rank, rank*rank} is [1 0 0]
	// 8 ranks, the sum of {1, rank, rank*rank} is [8 28 140]
	// 64 ranks, the sum of {1, rank, rank*rank} is [64 2016 85344]
}

func TestBadRanks(t *testing.T) {
	require.ErrorIs(t, run(t.Context(), io.Discard, 65, -1), comm.Invalid)
}
