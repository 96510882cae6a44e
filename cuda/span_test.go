package cuda_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/gputest"
)

func TestSymmetric(t *testing.T) {
	r := newRig(t)
	free, _, err := r.Memory()
	require.NoError(t, err)
	const n = 300000
	ranks := make([]*cuda.Device, 8)
	for i := range ranks {
		ranks[i] = r.Device
	}
	s, err := cuda.NewSymmetric(ranks, 4*n)
	require.NoError(t, err)
	require.Equal(t, 8*s.Stride, s.Bytes())
	require.GreaterOrEqual(t, s.Stride, 4*n)
	l := cuda.Linear((n+255)/256, 256)
	for rank := range 8 {
		require.Equal(t, s.Base()+uintptr(rank*s.Stride), s.At(rank))
		require.NoError(t, r.s.Fill32(s.At(rank), 0x3f800000, n)) // 1.0
	}
	for rank := 1; rank < 8; rank++ { // rank 0's kernel adds every peer's memory
		require.NoError(t, cuda.Run(r.s, r.function("add"), &l, &addParams{s.At(0), s.At(0), s.At(rank), n}))
	}
	for i, v := range r.get(s.At(0), n) {
		require.Equal(t, float32(8), v, i)
	}
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	after, _, err := r.Memory()
	require.NoError(t, err)
	require.Equal(t, free, after, "all memory is back")
	_, err = cuda.NewSymmetric(ranks, 1<<50)
	require.ErrorIs(t, err, cuda.OutOfMemory)
	_, err = cuda.NewSymmetric(nil, 1)
	require.ErrorIs(t, err, comm.Invalid)
}

func TestSymmetricOverDevices(t *testing.T) {
	d := gputest.Devices(t, 2)
	s, err := cuda.NewSymmetric(d, 1<<20)
	require.NoError(t, err)
	for rank := range d {
		stream, err := d[1-rank].NewStream(0)
		require.NoError(t, err)
		require.NoError(t, stream.Fill32(s.At(rank), uint32(rank+1), 1<<18))
		got := make([]uint32, 1<<18)
		require.NoError(t, stream.Download(cuda.Bytes(got), s.At(rank)))
		require.Equal(t, uint32(rank+1), got[1<<18-1])
		require.NoError(t, stream.Close())
	}
	require.NoError(t, s.Close())
}

// Physical memory goes through a descriptor and appears at a second address.
func TestSharedDescriptor(t *testing.T) {
	r := newRig(t)
	g, err := cuda.Granularity(r.Device)
	require.NoError(t, err)
	p, err := r.Create(g, true)
	require.NoError(t, err)
	fd, err := p.FD()
	require.NoError(t, err)
	q, err := r.ImportFD(fd, g)
	require.NoError(t, err)
	require.NoError(t, syscall.Close(fd))
	span, err := r.Reserve(2 * g)
	require.NoError(t, err)
	require.Error(t, span.Map(2*g, p), "past the end")
	require.NoError(t, errors.Join(span.Map(0, p), span.Map(g, q), p.Close(), q.Close(), span.SetAccess(r.Device)))
	require.NoError(t, r.s.Fill(span.Base()+16, 0xab, 4))
	got := make([]byte, 4)
	require.NoError(t, r.s.Download(got, span.Base()+uintptr(g)+16))
	require.Equal(t, bytes.Repeat([]byte{0xab}, 4), got)
	require.NoError(t, span.Close())
}

// A child process maps the parent's allocation and writes into it.
func TestIPC(t *testing.T) {
	r := newRig(t)
	if env := os.Getenv("WEFT_TEST_IPC"); env != "" {
		var h cuda.IPCHandle
		_, err := hex.Decode(h[:], []byte(env))
		require.NoError(t, err)
		addr, err := r.Import(h)
		require.NoError(t, err)
		require.NoError(t, r.s.Fill(addr, 0x5a, 1000))
		require.NoError(t, r.s.Synchronize())
		require.NoError(t, r.Unimport(addr))
		return
	}
	addr := r.alloc(1 << 20)
	require.NoError(t, r.s.Fill(addr, 0, 1<<20))
	require.NoError(t, r.s.Synchronize())
	h, err := r.Export(addr)
	require.NoError(t, err)
	child := exec.Command(os.Args[0], "-test.run", "^TestIPC$")
	child.Env = append(os.Environ(), "WEFT_TEST_IPC="+hex.EncodeToString(h[:]))
	out, err := child.CombinedOutput()
	require.NoError(t, err, string(out))
	got := make([]byte, 1001)
	require.NoError(t, r.s.Download(got, addr))
	require.Equal(t, append(bytes.Repeat([]byte{0x5a}, 1000), 0), got)
}
