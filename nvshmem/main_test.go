package nvshmem_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/nvshmem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A wrong Config is refused before any library is looked for, and the error says what is wrong.
func TestOpenRefuses(t *testing.T) {
	for text, cfg := range map[string]nvshmem.Config{
		"rank 0 of 0: Size must be at least 1": {},
		"rank 2 of 2":                          {Rank: 2, Size: 2},
		"no Store":                             {Size: 1},
	} {
		_, err := nvshmem.Open(t.Context(), cfg)
		require.ErrorIs(t, err, comm.Invalid)
		require.ErrorContains(t, err, text)
	}
}
