package gputest

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/dl"
	"github.com/weftgo/weft/internal/envknob"
)

var requireGPU = envknob.Register("WEFT_REQUIRE_GPU", "1: a test that would skip because there is no GPU or no CUDA library fails", "0", "1")

// Required reports whether a missing GPU is a failure.
func Required(t testing.TB) bool {
	v, err := requireGPU.Get()
	require.NoError(t, err)
	return v == "1"
}

// Skip ends the test: with a skip, or with a failure where a GPU is required.
func Skip(t testing.TB, why string) {
	t.Helper()
	if Required(t) {
		t.Fatalf("%s=1, and %s", requireGPU.Name, why)
	}
	t.Skip(why)
}

// Device returns the first GPU, closed when the test ends. It skips without one.
func Device(t testing.TB) *cuda.Device {
	t.Helper()
	return Devices(t, 1)[0]
}

// Devices returns the first n GPUs, closed when the test ends. It skips with fewer; more than one is never required.
func Devices(t testing.TB, n int) []*cuda.Device {
	t.Helper()
	count, err := cuda.Count()
	if err != nil {
		Skip(t, "this test needs a GPU: "+err.Error())
	}
	if count == 0 {
		Skip(t, "this test needs a GPU: the driver shows none")
	}
	if count < n {
		t.Skipf("this test needs %d GPUs, there are %d", n, count)
	}
	devices := make([]*cuda.Device, n)
	for i := range devices {
		devices[i], err = cuda.Open(i)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, devices[i].Close()) })
	}
	return devices
}

// emulated is the name of the GPUs of internal/emulator.
const emulated = "emulated GPU"

// Emulated reports whether the device is internal/emulator's: it computes the same, far slower.
func Emulated(d *cuda.Device) bool { return d.Info().Name == emulated }

// NeedHardware skips the test where the GPU is emulated, even where a GPU is required: what it checks cannot be seen there. why
// says what that is, such as "it measures bandwidth".
func NeedHardware(t testing.TB, why string) {
	t.Helper()
	infos, err := cuda.Devices()
	if err == nil && len(infos) > 0 && infos[0].Name == emulated {
		t.Skip("this test needs a GPU that is not emulated: " + why)
	}
}

// Library ends the test when err says that a library is not available, and fails it for any other error.
func Library(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if !errors.Is(err, comm.Unavailable) {
		t.Fatal(err)
	}
	if wheels := os.Getenv(dl.Wheels.Name); wheels != "" {
		t.Fatalf("%s=%s, and %v", dl.Wheels.Name, wheels, err)
	}
	Skip(t, "this test needs a library: "+err.Error())
}
