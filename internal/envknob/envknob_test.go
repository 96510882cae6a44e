package envknob

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKnob(t *testing.T) {
	name := fmt.Sprint("WEFT_TEST_KNOB", len(All())) // a test may run again in the same process
	k := Register(name, "for this test", "a", "b")
	v, err := k.Get()
	require.NoError(t, err)
	require.Empty(t, v)
	t.Setenv(k.Name, "b")
	v, err = k.Get()
	require.NoError(t, err)
	require.Equal(t, "b", v)
	t.Setenv(k.Name, "c")
	_, err = k.Get()
	require.ErrorContains(t, err, name+`="c": use one of a, b`)
	require.Panics(t, func() { Register(name, "again") })
	require.Panics(t, func() { Register("OTHER", "no prefix") })
	require.Contains(t, All(), k)
}

// A wrong value is logged when its variable is registered, and once however often it is read.
func TestWrongValueIsLoggedOnce(t *testing.T) {
	var text bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	defer slog.SetDefault(old)
	name := fmt.Sprint("WEFT_TEST_WRONG", len(All()))
	t.Setenv(name, "7")
	k := Register(name, "for this test", "0", "1")
	require.Contains(t, text.String(), name+`=\"7\": use one of 0, 1`)
	for range 2 {
		_, err := k.Get()
		require.Error(t, err)
	}
	require.Equal(t, 1, strings.Count(text.String(), "\n"), text.String())
}
