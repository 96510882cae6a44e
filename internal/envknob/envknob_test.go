package envknob

import (
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
