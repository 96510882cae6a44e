package cuda_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/gputest"
)

// median times run by device events.
func (r *rig) median(n int, run func() error) time.Duration {
	r.t.Helper()
	start, err := r.NewEvent(true)
	require.NoError(r.t, err)
	end, err := r.NewEvent(true)
	require.NoError(r.t, err)
	times := make([]time.Duration, n)
	for i := range times {
		require.NoError(r.t, start.Record(r.s))
		require.NoError(r.t, run())
		require.NoError(r.t, end.Record(r.s))
		require.NoError(r.t, end.Synchronize())
		times[i], err = end.Since(start)
		require.NoError(r.t, err)
	}
	require.NoError(r.t, start.Close())
	require.NoError(r.t, end.Close())
	slices.Sort(times)
	return times[n/2]
}

func TestEnqueueDoesNotAllocate(t *testing.T) {
	r := newRig(t)
	f, addr, event := r.function("add"), r.alloc(3*1024), (*cuda.Event)(nil)
	event, err := r.NewEvent(false)
	require.NoError(t, err)
	defer func() { require.NoError(t, event.Close()) }()
	for name, call := range map[string]func() error{
		"launch": func() error {
			l := cuda.Linear(1, 256)
			return cuda.Run(r.s, f, &l, &addParams{addr, addr + 1024, addr + 2048, 256})
		},
		"copy":   func() error { return r.s.Copy(addr, addr+1024, 1024) },
		"fill":   func() error { return r.s.Fill(addr, 0, 1024) },
		"record": func() error { return event.Record(r.s) },
		"wait":   func() error { return r.s.WaitEvent(event) },
		"query":  func() error { _, err := r.s.Query(); return err },
	} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if err := call(); err != nil {
				t.Error(err)
			}
		}), name)
	}
	require.NoError(t, r.s.Synchronize())
}

// TestMeasure prints what the driver calls of this package cost.
func TestMeasure(t *testing.T) {
	if testing.Short() {
		t.Skip("a measurement")
	}
	gputest.NeedHardware(t, "it measures")
	r := newRig(t)
	f, one := r.function("nothing"), cuda.Linear(1, 32)
	const bursts, burst = 41, 100 // short enough that the queue never fills: a full one makes the host wait for the GPU
	perCall := func(name string, call func() error) {
		var times []time.Duration
		for range bursts {
			require.NoError(t, r.s.Synchronize())
			start := time.Now()
			for range burst {
				if err := call(); err != nil {
					t.Fatal(err)
				}
			}
			times = append(times, time.Since(start)/burst)
		}
		slices.Sort(times)
		t.Logf("RESULT host_%s %d ns a call (least %d)", name, times[bursts/2].Nanoseconds(), times[0].Nanoseconds())
	}
	perCall("launch", func() error { return cuda.Run(r.s, f, &one, &struct{}{}) })
	perCall("query", func() error { _, err := r.s.Query(); return err })
	addr := r.alloc(1 << 20)
	perCall("fill", func() error { return r.s.Fill(addr, 0, 256) })
	perCall("copy", func() error { return r.s.Copy(addr, addr+4096, 256) })

	for _, nodes := range []int{1, 20, 200} {
		g, err := r.s.Capture(func() error {
			for range nodes {
				if err := cuda.Run(r.s, f, &one, &struct{}{}); err != nil {
					return err
				}
			}
			return nil
		})
		require.NoError(t, err)
		exec, err := g.Instantiate()
		require.NoError(t, err)
		require.NoError(t, exec.Upload(r.s))
		took := r.median(100, func() error { return exec.Launch(r.s) })
		t.Logf("RESULT graph_%d_empty_kernels %.2f us, %.2f us a kernel", nodes, took.Seconds()*1e6, took.Seconds()*1e6/float64(nodes))
		require.NoError(t, exec.Close())
		require.NoError(t, g.Close())
	}

	const big = 2 << 30
	src, dst := r.alloc(big), r.alloc(big)
	require.NoError(t, r.s.Fill(src, 0x5a, big))
	took := r.median(20, func() error { return r.s.Copy(dst, src, big) })
	t.Logf("RESULT copy_device_2GiB %.2f TB/s read plus written", 2*big/took.Seconds()/1e12)
	pinned, err := r.AllocHost(256 << 20)
	require.NoError(t, err)
	defer func() { require.NoError(t, pinned.Close()) }()
	for _, c := range []struct {
		name     string
		dst, src uintptr
	}{{"to_device", dst, pinned.Addr()}, {"to_host", pinned.Addr(), src}} {
		took := r.median(10, func() error { return r.s.Copy(c.dst, c.src, 256<<20) })
		t.Logf("RESULT copy_%s_256MiB %.1f GB/s pinned", c.name, float64(256<<20)/took.Seconds()/1e9)
	}
}

func BenchmarkLaunch(b *testing.B) {
	r := newRig(b)
	f, l, p := r.function("add"), cuda.Linear(1, 32), addParams{}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := cuda.Run(r.s, f, &l, &p); err != nil {
			b.Fatal(err)
		}
		if i%100 == 99 { // a full queue makes the host wait for the GPU
			b.StopTimer()
			require.NoError(b, r.s.Synchronize())
			b.StartTimer()
		}
	}
}

func ExampleInfo_Arch() {
	fmt.Println(cuda.Info{Name: "NVIDIA H200", Major: 9}.Arch(), cuda.Info{Name: "NVIDIA A100", Major: 8}.Arch())
	// Output: sm_90a sm_80
}
