package ipc

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOffice hands a file over, to those who know the token.
func TestOffice(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	_, err = f.WriteString("hello")
	require.NoError(t, err)
	p, err := openOffice("token", []int{int(f.Fd()), int(f.Fd())})
	require.NoError(t, err)
	defer p.close()
	fds, err := fetch(t.Context(), p.name, "token", 2)
	require.NoError(t, err)
	got := os.NewFile(uintptr(fds[1]), "got")
	text := make([]byte, 5)
	_, err = got.ReadAt(text, 0)
	require.NoError(t, err)
	require.Equal(t, "hello", string(text))
	require.NoError(t, got.Close())
	closeFDs(fds[:1])
	_, err = fetch(t.Context(), p.name, "nekot", 2)
	require.ErrorContains(t, err, "no answer to the token")
	_, err = fetch(t.Context(), p.name, "token", 1)
	require.Error(t, err, "another number of ranks")
	_, err = fetch(t.Context(), "@weft-nobody", "token", 1)
	require.ErrorContains(t, err, "one network namespace")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	_, err = fetch(ctx, p.name, "token", 2)
	require.Error(t, err)
	require.Less(t, time.Since(start), time.Second)
}
