package cuda

import (
	"context"
	"fmt"
	"time"
)

// Stream is a queue of a device's work. One goroutine enqueues at a time; Query and Wait may come from any.
type Stream struct {
	dev    *Device
	handle uintptr
	owned  bool
}

// NewStream makes a stream that does not synchronise with the legacy default stream. Priority 0 is the default; lower
// numbers go first, within PriorityRange. The caller calls Close.
func (d *Device) NewStream(priority int) (*Stream, error) {
	s := &Stream{dev: d, owned: true}
	const nonBlocking = 1
	if err := d.check(cuStreamCreateWithPriority(d.ctx, &s.handle, nonBlocking, int32(priority)), "create a stream"); err != nil {
		return nil, err
	}
	return s, nil
}

// Adopt wraps the caller's CUstream, which must be of d's primary context. Close does not destroy it.
func (d *Device) Adopt(handle uintptr) (*Stream, error) {
	if handle > 2 { // 0, 1, 2: the legacy and per-thread default streams, which are of the current context
		var ctx uintptr
		if err := d.check(cuStreamGetCtx(d.ctx, handle, &ctx), "adopt a stream"); err != nil {
			return nil, err
		}
		if ctx != d.ctx {
			return nil, fmt.Errorf("cuda: device %d: the stream belongs to another context; weft uses primary contexts: %w",
				d.info.Ordinal, &Error{Call: "adopt a stream", Device: d.info.Ordinal, Code: InvalidContext})
		}
	}
	return &Stream{dev: d, handle: handle}, nil
}

// PriorityRange returns the least and the greatest priority of streams; the greatest is the lower number.
func (d *Device) PriorityRange() (least, greatest int, err error) {
	var l, g int32
	err = d.check(cuCtxGetStreamPriorityRange(d.ctx, &l, &g), "priority range")
	return int(l), int(g), err
}

// Device returns the stream's device.
func (s *Stream) Device() *Device { return s.dev }

// Handle returns the CUstream.
func (s *Stream) Handle() uintptr { return s.handle }

// Query reports whether all enqueued work is done. An error of that work shows here.
func (s *Stream) Query() (bool, error) {
	c := cuStreamQuery(s.dev.ctx, s.handle)
	if c == NotReady {
		return false, nil
	}
	return c == success, s.dev.check(c, "query a stream")
}

// Wait returns when all enqueued work is done, or with ctx's cause when that ends first. It polls, so that it holds no
// OS thread for long: quickly at first, then every 20 to 200 microseconds.
func (s *Stream) Wait(ctx context.Context) error {
	return poll(ctx, s.Query)
}

func poll(ctx context.Context, query func() (bool, error)) error {
	start := time.Now()
	for pause := 20 * time.Microsecond; ; {
		done, err := query()
		if done || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("cuda: waited %v for a stream: %w", time.Since(start).Round(time.Millisecond), context.Cause(ctx))
		}
		if time.Since(start) < 100*time.Microsecond {
			continue
		}
		time.Sleep(pause)
		pause = min(pause*5/4, 200*time.Microsecond)
	}
}

// Synchronize blocks an OS thread until all enqueued work is done; it cannot be interrupted. For tests and timing.
func (s *Stream) Synchronize() error {
	return s.dev.check(cuStreamSynchronize(s.dev.ctx, s.handle), "synchronize a stream")
}

// WaitEvent makes later work of s wait for what the event recorded; the host does not wait.
func (s *Stream) WaitEvent(e *Event) error {
	return s.dev.check(cuStreamWaitEvent(s.dev.ctx, s.handle, e.handle, 0), "wait for an event")
}

// Close destroys the stream after its work; an adopted one stays.
func (s *Stream) Close() error {
	if s.handle == 0 || !s.owned {
		return nil
	}
	err := s.dev.check(cuStreamDestroy(s.dev.ctx, s.handle), "destroy a stream")
	s.handle = 0
	return err
}

// WriteValue enqueues a 32-bit store, visible to all devices after the stream's earlier work. It needs no SM.
func (s *Stream) WriteValue(addr uintptr, value uint32) error {
	return s.dev.check(cuStreamWriteValue32(s.dev.ctx, s.handle, addr, value, 0), "write a value")
}

// WaitValue makes later work of s wait until the 32-bit word at addr, minus value, is not negative. It needs no SM.
func (s *Stream) WaitValue(addr uintptr, value uint32) error {
	return s.dev.check(cuStreamWaitValue32(s.dev.ctx, s.handle, addr, value, 0), "wait for a value")
}
