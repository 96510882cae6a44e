package nvshmem

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/internal/dl"
)

// TestSymbols resolves every row, also the optional ones, in the real libraries, and asks for the version. No GPU is needed.
func TestSymbols(t *testing.T) {
	path := hostLibrary(t)
	lib, err := dl.Open(dl.Spec{Name: "libnvshmem_host", Sonames: []string{path}})
	require.NoError(t, err)
	rows := Symbols()
	require.NotEmpty(t, rows)
	for i := range rows {
		rows[i].Optional = false
	}
	addrs, err := lib.Bind(rows)
	require.NoError(t, err)
	bindSymbols(addrs)
	t.Logf("%d symbols of %s, version %v, status %d", len(rows), lib.Path(), libraryVersion(), initStatus())
	require.False(t, libraryVersion().before(3, 4))
	require.Zero(t, initStatus())
	wheels(t) // binds the linker's rows
}
