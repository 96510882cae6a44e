package lockstep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// deviceConn is a driver of one rank whose memory the host cannot address: operations are queued on a stream and run at
// Wait, as on a GPU.
type deviceConn struct {
	memory map[uintptr][]int64
	next   uintptr
	queue  []func()
	used   []comm.Stream
}

var device = comm.Device{Kind: comm.CUDA, Index: 3}

func (d *deviceConn) Device() comm.Device         { return device }
func (d *deviceConn) Abort(error)                 {}
func (d *deviceConn) Close(context.Context) error { return nil }

func (d *deviceConn) Split(context.Context, int, int) (comm.Conn, int, int, error) {
	return nil, 0, 0, fmt.Errorf("not here")
}

func (d *deviceConn) Alloc(t dtype.DType, rows, cols int) (comm.Buffer, error) {
	d.next += 4096
	d.memory[d.next] = slices.Repeat([]int64{-1}, rows*cols)
	return comm.At(device, d.next, t, rows, cols, cols), nil
}

func (d *deviceConn) Free(b comm.Buffer) error {
	delete(d.memory, b.Addr())
	return nil
}

func (d *deviceConn) view(b comm.Buffer) []int64 {
	if b.Device() == device {
		for base, words := range d.memory {
			if i := int(b.Addr()-base) / 8; b.Addr() >= base && i < len(words) {
				return words[i:][:b.Rows()*b.Cols()]
			}
		}
		return nil
	}
	x, err := comm.View[int64](b)
	if err != nil {
		panic(err)
	}
	return x
}

func (d *deviceConn) Copy(s comm.Stream, dst, src comm.Buffer) error {
	d.used = append(d.used, s)
	d.queue = append(d.queue, func() { copy(d.view(dst), d.view(src)) })
	return nil
}

func (d *deviceConn) Do(s comm.Stream, op *comm.Op) error {
	if op.Kind != comm.AllGather {
		return fmt.Errorf("%v", op)
	}
	return d.Copy(s, op.Parts[0].Dst, op.Parts[0].Src)
}

func (d *deviceConn) Wait(_ context.Context, s comm.Stream) error {
	d.used = append(d.used, s)
	for _, f := range d.queue {
		f()
	}
	d.queue = d.queue[:0]
	return nil
}

// On a driver with memory of its own the record goes there, through the all_gather and back, on the stream asked for.
func TestAgreeThroughDeviceMemory(t *testing.T) {
	d := &deviceConn{memory: map[uintptr][]int64{}}
	s := comm.Stream{Handle: 77}
	l, err := New(comm.New(d, 0, 1), Config{Stream: s})
	require.NoError(t, err)
	require.Len(t, d.memory, 2)
	for step := range uint64(3) {
		a, err := l.Agree(t.Context(), Record{Tokens: int(step), Generation: step + 5})
		require.NoError(t, err)
		require.Equal(t, Agreement{Step: step + 1, Decision: []Decision{Sleep, Run, Run}[step], Tokens: []int{int(step)},
			MaxTokens: int(step), SumTokens: int(step), Balanced: true, Generation: step + 5}, a)
	}
	require.Equal(t, slices.Repeat([]comm.Stream{s}, 12), d.used)
	require.NoError(t, l.Close())
	require.NoError(t, l.Close(), "again")
	require.Empty(t, d.memory)
}

// Between processes the records go through device memory to the process's own rows, and the others' come from the store.
func TestProcessesThroughDeviceMemory(t *testing.T) {
	clients := join(t, 2)
	got := make([]Agreement, 2)
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for p, client := range clients {
		wg.Go(func() {
			l, err := New(comm.New(&deviceConn{memory: map[uintptr][]int64{}}, 0, 1), Config{Processes: client.Group("x")})
			if err != nil {
				errs[p] = err
				return
			}
			for range 3 {
				if got[p], errs[p] = l.Agree(t.Context(), Record{Tokens: 5 * p, Generation: uint64(p)}); errs[p] != nil {
					return
				}
			}
			errs[p] = l.Close()
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	for p := range got {
		require.Equal(t, Agreement{Step: 3, Decision: Run, Tokens: []int{0, 5}, MaxTokens: 5, SumTokens: 5, Generation: uint64(p)}, got[p])
	}
}
