package envknob

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKnob(t *testing.T) {
	k := Register("WEFT_TEST_KNOB", "for this test", "a", "b")
	v, err := k.Get()
	require.NoError(t, err)
	require.Empty(t, v)
	t.Setenv(k.Name, "b")
	v, err = k.Get()
	require.NoError(t, err)
	require.Equal(t, "b", v)
	t.Setenv(k.Name, "c")
	_, err = k.Get()
	require.ErrorContains(t, err, `WEFT_TEST_KNOB="c": use one of a, b`)
	require.Panics(t, func() { Register("WEFT_TEST_KNOB", "again") })
	require.Panics(t, func() { Register("OTHER", "no prefix") })
	require.Contains(t, All(), k)
}

// A wrong value is logged when its variable is registered, and once however often it is read.
func TestWrongValueIsLoggedOnce(t *testing.T) {
	var text bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	defer slog.SetDefault(old)
	t.Setenv("WEFT_TEST_WRONG", "7")
	k := Register("WEFT_TEST_WRONG", "for this test", "0", "1")
	require.Contains(t, text.String(), `WEFT_TEST_WRONG=\"7\": use one of 0, 1`)
	for range 2 {
		_, err := k.Get()
		require.Error(t, err)
	}
	require.Equal(t, 1, strings.Count(text.String(), "\n"), text.String())
}
