package suite

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{"8": 8, "4K": 4096, "4k": 4096, "128M": 128 << 20, "1.5G": 3 << 29, " 2 m ": 2 << 20, "0": 0} {
		var s Size
		require.NoError(t, s.UnmarshalText([]byte(text)))
		require.Equal(t, want, s, text)
	}
}

func FuzzSize(f *testing.F) {
	for _, s := range []string{"8", "128M", "1.5g", "k", "", "1e3", "NaN", "-1", "9999999G"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			require.GreaterOrEqual(t, int64(s), int64(0))
			require.Less(t, int64(s), int64(1)<<50)
		}
	})
}
