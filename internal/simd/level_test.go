package simd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		env  string
		best Level
		want Level
		text string
	}{
		{"", AVX512, AVX512, "simd: avx512"},
		{"avx2", AVX512, AVX2, "simd: avx2 (WEFT_SIMD=avx2; the processor has avx512)"},
		{"go", AVX2, Go, "simd: go (WEFT_SIMD=go; the processor has avx2)"},
		{"avx512", AVX2, AVX2, "simd: avx2 (WEFT_SIMD=avx512, but this processor lacks it)"},
		{"sse", AVX2, AVX2, `simd: avx2 (WEFT_SIMD="sse" is not avx512, avx2 or go)`},
	} {
		level, text := choose(c.env, c.best)
		require.Equal(t, c.want, level, c.env)
		require.Equal(t, c.text, text)
	}
}

func TestForceRefusesWhatTheProcessorLacks(t *testing.T) {
	require.Panics(t, func() { Force(Supported() + 1) })
	defer Force(Current())()
	restore := Force(Go)
	require.Equal(t, Go, Current())
	restore()
	require.LessOrEqual(t, Current(), Supported())
}
