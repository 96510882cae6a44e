package standin

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// One folder for the same libraries, another for other flags. A source that does not compile is an error, and leaves nothing behind.
func TestBuild(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := Build(t, CUDA)
	require.FileExists(t, filepath.Join(dir, CUDA.File))
	before, err := os.Stat(filepath.Join(dir, CUDA.File))
	require.NoError(t, err)
	require.Equal(t, dir, Build(t, CUDA))
	after, err := os.Stat(filepath.Join(dir, CUDA.File))
	require.NoError(t, err)
	require.Equal(t, before.ModTime(), after.ModTime(), "not built again")
	require.NotEqual(t, dir, Build(t, CUDA.With("-DOLD")))
	require.Empty(t, CUDA.Flags)
	require.ErrorContains(t, CUDA.With("-DcuInit=1 +").compile("gcc", module(t), t.TempDir()), "libcuda.c")
	entries, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	require.Len(t, entries, 2)
}

// The child sees the variables, and the parent what it printed.
func TestRerun(t *testing.T) {
	t.Run("sub", func(t *testing.T) {
		inside, output := Rerun(t, "WEFT_TEST_WORD=hello")
		if inside {
			fmt.Println("the word is", os.Getenv("WEFT_TEST_WORD"))
			return
		}
		require.Contains(t, output, "the word is hello")
		require.Contains(t, output, "--- PASS: TestRerun/sub")
	})
}
