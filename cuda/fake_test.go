//go:build linux && cgo

package cuda_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/standin"
)

// withFake runs a test of this binary in a child process whose libcuda is testdata/libcuda.c. The parent returns false.
func withFake(t *testing.T, env []string, flags ...string) bool {
	t.Helper()
	if standin.Inside() {
		return true
	}
	lib := filepath.Join(standin.Build(t, standin.CUDA.With(flags...)), standin.CUDA.File)
	inside, _ := standin.Rerun(t, append([]string{"WEFT_CUDA_LIB=" + lib, "CUDA_MODULE_LOADING="}, env...)...)
	return inside
}

func fake(t *testing.T) (*cuda.Device, *cuda.Stream) {
	t.Helper()
	d, err := cuda.Open(0)
	require.NoError(t, err)
	s, err := d.NewStream(-2)
	require.NoError(t, err)
	require.Equal(t, uintptr(498), s.Handle())
	return d, s
}

func TestFakeDevices(t *testing.T) {
	if !withFake(t, nil) {
		return
	}
	l, err := cuda.Loaded()
	require.NoError(t, err)
	require.Equal(t, os.Getenv("WEFT_CUDA_LIB"), l.Path)
	require.Equal(t, "13.0", l.Version)
	require.Equal(t, "EAGER", os.Getenv("CUDA_MODULE_LOADING"))
	infos, err := cuda.Devices()
	require.NoError(t, err)
	require.Len(t, infos, 2)
	require.Equal(t, cuda.Info{Ordinal: 1, Name: "Fake B", UUID: "GPU-01020304-0506-0708-090a-0b0c0d0e0f10", PCIBusID: "0000:19:00.0", SMs: 132, Major: 9, Minor: 1,
		MemoryBytes: 2 << 30, L2Bytes: 1, SharedBytes: 1, VMM: true, Cooperative: true, Cluster: true}, infos[1])
	require.Equal(t, "sm_91a", infos[1].Arch())
	require.Equal(t, "sm_80", cuda.Info{Major: 8}.Arch())
	a, err := cuda.Open(0)
	require.NoError(t, err)
	b, err := cuda.Open(1)
	require.NoError(t, err)
	for pair, want := range map[[2]*cuda.Device]bool{{a, a}: true, {a, b}: false, {b, a}: true} {
		can, err := pair[0].CanAccess(pair[1])
		require.NoError(t, err)
		require.Equal(t, want, can)
	}
	require.NoError(t, a.EnablePeer(b), "already enabled is no error")
	require.NoError(t, a.EnablePeer(a))
	require.ErrorIs(t, b.EnablePeer(a), cuda.Code(217))
	_, err = cuda.NewSymmetric([]*cuda.Device{a, b}, 1)
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorContains(t, err, "no peer access to device 1")
	_, err = cuda.Open(2)
	require.ErrorContains(t, err, "the driver shows 2 devices")
	require.NoError(t, a.Close())
	require.ErrorContains(t, a.Close(), "closed more often than opened")
	_, err = cuda.Symbol("cuInit")
	require.NoError(t, err)
	_, err = cuda.Symbol("cuNoSuch")
	require.ErrorIs(t, err, comm.Unavailable)
	for _, row := range cuda.Symbols() {
		if !row.Optional {
			_, err := cuda.Symbol(row.Name)
			require.NoError(t, err, row.Name)
		}
	}
}

func TestFakeMemory(t *testing.T) {
	if !withFake(t, nil) {
		return
	}
	d, s := fake(t)
	addr, err := d.Alloc(64)
	require.NoError(t, err)
	require.Equal(t, 1, d.Alive())
	require.NoError(t, s.Fill(addr, 0x11, 64))
	require.NoError(t, s.Fill32(addr+4, 0x22222222, 2))
	got := make([]byte, 16)
	require.NoError(t, s.Download(got, addr))
	require.Equal(t, []byte("\x11\x11\x11\x11\x22\x22\x22\x22\x22\x22\x22\x22\x11\x11\x11\x11"), got)
	require.NoError(t, s.Upload(addr, cuda.Bytes([]uint16{1, 0x203})))
	require.NoError(t, s.Copy(addr+8, addr, 4))
	require.NoError(t, s.Download(got, addr))
	require.Equal(t, []byte("\x01\x00\x03\x02\x22\x22\x22\x22\x01\x00\x03\x02"), got[:12])
	h, err := d.Export(addr)
	require.NoError(t, err)
	same, err := d.Import(h)
	require.NoError(t, err)
	require.Equal(t, addr, same)
	owner, onDevice, err := d.Owner(addr)
	require.NoError(t, err)
	require.True(t, onDevice)
	require.Zero(t, owner)
	_, _, err = d.Owner(8)
	require.ErrorIs(t, err, comm.Invalid)
	require.NoError(t, errors.Join(d.Register(addr, 64), d.Unregister(addr)))
	require.NoError(t, d.Free(addr))
	require.NoError(t, d.Free(0))
	_, err = d.Alloc(2 << 20)
	require.EqualError(t, err, "cuda: device 0: alloc 2097152 bytes: CUDA_ERROR_OUT_OF_MEMORY (2, out of memory)")
	require.ErrorIs(t, err, cuda.OutOfMemory)
	require.ErrorIs(t, err, comm.Unavailable)
	require.NotErrorIs(t, err, comm.Invalid)
	p, err := d.AllocHost(8)
	require.NoError(t, err)
	require.Len(t, p.Bytes(), 8)
	require.NoError(t, p.Close())
	sym, err := cuda.NewSymmetric([]*cuda.Device{d, d, d}, 3<<20)
	require.NoError(t, err)
	require.Equal(t, 4<<20, sym.Stride)
	require.Equal(t, sym.Base()+8<<20, sym.At(2))
	require.Equal(t, 0, d.Alive(), "the mapping keeps the memory, the handles are closed")
	require.NoError(t, sym.Close())
	_, err = cuda.NewSymmetric([]*cuda.Device{d, d}, 1<<25)
	require.ErrorIs(t, err, cuda.OutOfMemory)
	require.Zero(t, d.Alive())
}

func TestFakeHold(t *testing.T) {
	if !withFake(t, nil) {
		return
	}
	d, _ := fake(t)
	one, two := d.Hold(), d.Hold()
	addr, err := d.Alloc(64)
	require.NoError(t, err)
	p, err := d.AllocHost(8)
	require.NoError(t, err)
	m, err := d.LoadModule([]byte("good"))
	require.NoError(t, err)
	require.NoError(t, errors.Join(d.Free(addr), p.Close(), p.Close(), m.Close(), m.Close()))
	require.Equal(t, 3, d.PutOff())
	require.Equal(t, 2, d.Alive(), "not given back yet")
	require.NoError(t, errors.Join(one(), one()))
	require.Equal(t, 3, d.PutOff(), "somebody still holds it")
	_, err = d.Alloc(2 << 20)
	require.ErrorIs(t, err, cuda.OutOfMemory)
	require.ErrorContains(t, err, "alloc 2097152 bytes (while ranks may wait for each other, 3 frees are put off; see Reclaim)")
	require.NoError(t, d.Reclaim())
	require.Zero(t, d.PutOff())
	require.Zero(t, d.Alive())
	addr, err = d.Alloc(64)
	require.NoError(t, err)
	require.NoError(t, d.Free(addr))
	require.NoError(t, two())
	require.Zero(t, d.Alive())
	addr, err = d.Alloc(64)
	require.NoError(t, err)
	require.NoError(t, d.Free(addr))
	require.Zero(t, d.Alive(), "at once again")
}

type fakeParams struct {
	a, b uintptr
	n    int32
}

func TestFakeLaunch(t *testing.T) {
	if !withFake(t, nil) {
		return
	}
	d, s := fake(t)
	_, err := d.LoadModule([]byte("x"))
	require.ErrorIs(t, err, cuda.InvalidImage)
	m, err := d.LoadModule([]byte("good"))
	require.NoError(t, err)
	_, err = m.Function("absent")
	require.ErrorIs(t, err, cuda.NotFound)
	f, err := m.Function("f")
	require.NoError(t, err)
	addr, bytes, err := m.Global("last")
	require.NoError(t, err)
	require.Equal(t, 48, bytes)
	last := func() []uint32 {
		got := make([]uint32, 12)
		require.NoError(t, s.Download(cuda.Bytes(got), addr))
		return got
	}
	l := cuda.Linear(7, 256)
	l.Shared = 99
	require.NoError(t, cuda.Run(s, f, &l, &fakeParams{1, 2, 33}))
	require.Equal(t, []uint32{7, 1, 256, 99, 498, 0, 0, 0, 0, 0, 20, 33}, last())
	l.Cluster, l.Cooperative, l.Grid[2] = 4, 1, 5
	require.NoError(t, cuda.Run(s, f, &l, &fakeParams{1, 2, 44}))
	require.Equal(t, []uint32{7, 5, 256, 99, 498, 2, 4, 4, 2, 1, 20, 44}, last())
	plain := cuda.Linear(7, 256)
	plain.RemoteDomain, plain.Overlap = 1, 1
	require.NoError(t, cuda.Run(s, f, &plain, &fakeParams{1, 2, 55}))
	require.Equal(t, []uint32{7, 1, 256, 0, 498, 2, 10, 1, 6, 1, 20, 55}, last())
	l.Block[0] = 2048
	err = cuda.Run(s, f, &l, &fakeParams{})
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorContains(t, err, "launch f <<<[7 1 5], [2048 1 1], 99>>> cluster 4 cooperative 1, 20 bytes of parameters")
	require.ErrorContains(t, cuda.Run(s, f, &l, &[2]uintptr{}), "packs 16 bytes of parameters, the kernel takes 20")
	require.ErrorContains(t, cuda.Run(s, f, &l, &[4]uintptr{}), "packs 32 bytes of parameters, the kernel takes 20")
	_, err = f.MaxClusters(l)
	require.ErrorIs(t, err, comm.Unavailable, "an optional symbol that is not there")
	require.ErrorContains(t, err, "the driver is too old")
	l = cuda.Linear(1, 32)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if cuda.Run(s, f, &l, &fakeParams{1, 2, 3}) != nil || s.Copy(addr, addr, 4) != nil {
			t.Error("launch and copy")
		}
	}))
}

func TestFakeStreams(t *testing.T) {
	if !withFake(t, nil) {
		return
	}
	d, s := fake(t)
	busy, err := d.NewStream(5)
	require.NoError(t, err)
	done, err := busy.Query()
	require.NoError(t, err)
	require.False(t, done)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, busy.Wait(ctx), context.DeadlineExceeded)
	require.NoError(t, s.Wait(t.Context()))
	_, err = d.Adopt(600)
	require.ErrorIs(t, err, cuda.InvalidContext)
	mine, err := d.Adopt(601)
	require.NoError(t, err)
	require.NoError(t, mine.Close())
	require.Equal(t, uintptr(601), mine.Handle(), "an adopted stream stays")
	e, err := d.NewEvent(true)
	require.NoError(t, err)
	require.Equal(t, uintptr(300), e.Handle())
	took, err := e.Since(e)
	require.NoError(t, err)
	require.Equal(t, 1500*time.Microsecond, took)
	why := errors.New("why")
	_, err = s.Capture(func() error { return why })
	require.ErrorIs(t, err, why)
	require.Panics(t, func() { _, _ = s.Capture(func() error { panic(1) }) })
	g, err := s.Capture(func() error {
		capturing, err := s.Capturing()
		require.True(t, capturing)
		return err
	})
	require.NoError(t, err)
	n, err := g.NumNodes()
	require.NoError(t, err)
	require.Equal(t, 4, n)
	exec, err := g.Instantiate()
	require.NoError(t, err)
	require.ErrorContains(t, exec.Update(g), "result 5")
	require.NoError(t, errors.Join(exec.Launch(s), exec.Close(), g.Close(), s.Close()))
}

// Every call makes its device's context current, on whatever thread it runs.
func TestFakeThreads(t *testing.T) {
	if !withFake(t, nil) {
		return
	}
	d, s := fake(t)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 50 {
				addr, err := d.Alloc(16)
				if err = errors.Join(err, s.Fill(addr, 1, 16), d.Free(addr)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, d.Alive())
}

func TestFakeOldDriver(t *testing.T) {
	if !withFake(t, nil, "-DOLD") {
		return
	}
	_, err := cuda.Count()
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorContains(t, err, "it lacks cuGraphUpload (since 11.1)")
	_, err = cuda.Open(0)
	require.ErrorIs(t, err, comm.Unavailable)
}

func TestFakeInitFails(t *testing.T) {
	if !withFake(t, []string{"FAKE_INIT=100"}) {
		return
	}
	_, err := cuda.Devices()
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorIs(t, err, cuda.NoDevice)
}
