package gputest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/dl"
)

// ended records how a test ended instead of ending one.
type ended struct {
	testing.TB
	how string
}

func (e *ended) Helper()                   {}
func (e *ended) Skip(args ...any)          { e.end("skip: " + fmt.Sprint(args...)) }
func (e *ended) Fatal(args ...any)         { e.end("fail: " + fmt.Sprint(args...)) }
func (e *ended) Fatalf(f string, a ...any) { e.end("fail: " + fmt.Sprintf(f, a...)) }
func (e *ended) end(how string)            { e.how = how; panic(e) }

func outcome(t *testing.T, fn func(tb testing.TB)) (how string) {
	e := &ended{TB: t}
	defer func() {
		if p := recover(); p != nil {
			require.Equal(t, any(e), p)
		}
		how = e.how
	}()
	fn(e)
	return ""
}

func TestOutcomes(t *testing.T) {
	none := fmt.Errorf("no library: %w", comm.Unavailable)
	for _, c := range []struct {
		name, required, wheels string
		err                    error
		want                   string
	}{
		{"there", "1", "/w", nil, ""},
		{"skip", "", "", none, "skip: this test needs a library: no library: unavailable"},
		{"required", "1", "", none, "fail: WEFT_REQUIRE_GPU=1, and this test needs a library: no library: unavailable"},
		{"wheels", "", "/w", none, "fail: WEFT_WHEELS=/w, and no library: unavailable"},
		{"broken", "", "", errors.New("broken"), "fail: broken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(requireGPU.Name, c.required)
			t.Setenv(dl.Wheels.Name, c.wheels)
			require.Equal(t, c.want, outcome(t, func(tb testing.TB) { Library(tb, c.err) }))
		})
	}
}

func TestDeviceRequired(t *testing.T) {
	if n, err := cuda.Count(); err == nil && n > 0 {
		t.Skip("there is a GPU here")
	}
	t.Setenv(requireGPU.Name, "1")
	require.Contains(t, outcome(t, func(tb testing.TB) { Device(tb) }), "fail: WEFT_REQUIRE_GPU=1, and this test needs a GPU: ")
	t.Setenv(requireGPU.Name, "0")
	require.Contains(t, outcome(t, func(tb testing.TB) { Device(tb) }), "skip: this test needs a GPU: cuda: libcuda not found; tried")
}

func TestNeedHardware(t *testing.T) {
	infos, err := cuda.Devices()
	how := outcome(t, func(tb testing.TB) { NeedHardware(tb, "it measures") })
	if err == nil && len(infos) > 0 && infos[0].Name == emulated {
		require.Equal(t, "skip: this test needs a GPU that is not emulated: it measures", how)
		require.True(t, Emulated(Device(t)))
		return
	}
	require.Empty(t, how)
}
