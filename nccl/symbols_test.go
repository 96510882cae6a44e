//go:build linux && cgo

package nccl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/internal/dl"
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/nccl/internal/calls"
)

// wheelVersion is the library of .ci/cuda-wheels.
const wheelVersion = 22809

// Every row is in the real library exactly when its version says so. No GPU is needed to look.
func TestSymbols(t *testing.T) {
	lib, err := dl.Open(spec)
	if err != nil {
		gputest.Library(t, &unavailable{err})
	}
	rows := Symbols()
	require.Greater(t, len(rows), 55)
	addrs, err := lib.Bind(rows)
	require.NoError(t, err, "rows of %s and older are required", versionText(Minimum))
	version := versionOf(t, lib)
	t.Logf("%s, version %s", lib.Path(), versionText(version))
	for i, row := range rows {
		if since := parseVersion(row.Since); since <= version {
			require.NotZero(t, addrs[i], "%s came with %s", row.Name, row.Since)
		} else if version == wheelVersion {
			require.Zero(t, addrs[i], "%s is said to come with %s only", row.Name, row.Since)
		}
	}
}

// versionOf asks the library itself; nothing else is called.
func versionOf(t *testing.T, lib *dl.Library) int {
	rows := Symbols()
	require.Equal(t, "ncclGetVersion", rows[calls.GetVersion].Name)
	addrs := make([]uintptr, len(rows))
	addrs[calls.GetVersion] = lib.Lookup("ncclGetVersion")
	calls.Bind(addrs)
	var msg [calls.TextBytes]byte
	a := [1]uint64{}
	require.Equal(t, Success, run(0, calls.GetVersion, a[:], &msg))
	if loaded.lib != nil { // another test of this process has it open
		addrs, err := loaded.lib.Bind(rows)
		require.NoError(t, err)
		calls.Bind(addrs)
	}
	return int(int32(a[0]))
}

func TestVersions(t *testing.T) {
	for text, want := range map[string]int{"2.3.5": 20305, "2.18.1": 21801, "2.28.9": 22809, "2.30.7": 23007} {
		require.Equal(t, want, parseVersion(text))
		require.Equal(t, text, versionText(want))
	}
	for _, row := range Symbols() {
		require.Positive(t, parseVersion(row.Since), row.Name)
	}
}
