package nccl_test

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/nccl"
)

// burst is the enqueues between two waits: few enough for the stream's queue.
const burst = 64

// The host cost of an enqueue: NCCL's own call in a loop in C (testdata/loop.c, built beside it), the binding's, and the
// driver's, in turns. Each line is the fastest of 40 bursts.
func TestGPUCost(t *testing.T) {
	d, s := gpu(t)
	lib, err := nccl.Loaded()
	require.NoError(t, err)
	loop := buildLoop(t)
	for _, blocking := range []bool{true, false} {
		id, err := nccl.UniqueID()
		require.NoError(t, err)
		c, err := nccl.NewCommunicator(t.Context(), d, 1, 0, id, nccl.Options{Blocking: blocking})
		require.NoError(t, err)
		src := upload(t, d, s, make([]float32, 2048)) // out of place: NCCL does nothing at all for one rank in place
		call := nccl.Call{Kind: nccl.AllReduce, Src: uint64(src), Dst: uint64(src) + 4096, Count: 1024, Type: nccl.Float32}
		w, err := nccl.Open(t.Context(), nccl.Config{Devices: []comm.Device{{Kind: comm.CUDA}}, Options: nccl.Options{Blocking: blocking}})
		require.NoError(t, err)
		k := w.Local()[0]
		b, err := comm.Alloc(k, dtype.F32, 2, 1024)
		require.NoError(t, err)
		fast := map[string][]float64{}
		for range 4 {
			fast["C"] = append(fast["C"], inC(t, loop, lib.Path, blocking))
			fast["binding"] = append(fast["binding"], best(t, func() error { return c.Enqueue(t.Context(), s, call) }, func() error { return s.Wait(t.Context()) }))
			fast["driver"] = append(fast["driver"], best(t, func() error { return k.AllReduce(comm.Stream{}, b.Slice(1, 2), b.Slice(0, 1), comm.Sum) }, func() error { return k.Wait(t.Context(), comm.Stream{}) }))
		}
		inC, binding, driver := slices.Min(fast["C"]), slices.Min(fast["binding"]), slices.Min(fast["driver"])
		t.Logf("cost blocking %v: one all_reduce of 4 KiB, one rank: C %.0f ns, binding %.0f ns (%+.0f), driver %.0f ns (%+.0f)",
			blocking, inC, binding, binding-inC, driver, driver-inC)
		if blocking {
			require.LessOrEqual(t, binding-inC, 1000.0, "the binding's own cost, ns")
		}
		require.NoError(t, comm.Free(k, b))
		require.NoError(t, w.Close(t.Context()))
		require.NoError(t, c.Destroy())
		require.NoError(t, d.Free(src))
	}
}

// best returns the nanoseconds of one enqueue in the fastest burst.
func best(t *testing.T, enqueue, wait func() error) float64 {
	least := time.Duration(1 << 62)
	for range 40 {
		begin := time.Now()
		for range burst {
			if err := enqueue(); err != nil {
				t.Fatal(err)
			}
		}
		least = min(least, time.Since(begin))
		require.NoError(t, wait())
	}
	return float64(least) / burst
}

// buildLoop returns the program of testdata/loop.c: already built, or built here.
func buildLoop(t *testing.T) string {
	if _, err := os.Stat("testdata/loop"); err == nil {
		return "testdata/loop"
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("this test compiles a program: no gcc")
	}
	path := t.TempDir() + "/loop"
	out, err := exec.Command(gcc, "-O2", "-o", path, "testdata/loop.c", "-ldl").CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

// inC returns the nanoseconds of one call in C.
func inC(t *testing.T, loop, lib string, blocking bool) float64 {
	out, err := exec.Command(loop, lib, strconv.Itoa(burst), strconv.FormatBool(blocking)).CombinedOutput()
	require.NoError(t, err, string(out))
	f := strings.Fields(string(out))
	ns, err := strconv.ParseFloat(f[len(f)-1], 64)
	require.NoError(t, err, string(out))
	return ns
}
