package kernels

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every kernel of both programs takes the form that gangSource finds.
func TestGangSource(t *testing.T) {
	for _, names := range [][]string{files, exchangeFiles} {
		var b strings.Builder
		for _, name := range names {
			b.WriteString(text(name) + "\n")
		}
		ganged := gangSource(b.String())
		require.Positive(t, strings.Count(ganged, "*gang) {"))
		require.Equal(t, strings.Count(ganged, `extern "C" __global__`), strings.Count(ganged, "= gang[blockIdx.y];"))
		require.NotContains(t, ganged, "__grid_constant__")
	}
}
