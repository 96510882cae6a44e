package cuda

import (
	"context"
	"time"
)

// Event is a point in a stream's work. One goroutine records at a time; Query and Wait may come from any.
type Event struct {
	dev    *Device
	handle uintptr
}

// NewEvent makes an event; with timing it can be given to Elapsed, at some cost. The caller calls Close.
func (d *Device) NewEvent(timing bool) (*Event, error) {
	e := &Event{dev: d}
	flags := uint32(2)
	if timing {
		flags = 0
	}
	if err := d.check(cuEventCreate(d.ctx, &e.handle, flags), "create an event"); err != nil {
		return nil, err
	}
	return e, nil
}

// Handle returns the CUevent.
func (e *Event) Handle() uintptr { return e.handle }

// Record marks the point after all work enqueued on s so far.
func (e *Event) Record(s *Stream) error {
	return e.dev.check(cuEventRecord(e.dev.ctx, e.handle, s.handle), "record an event")
}

// Query reports whether the point was reached; true for an event never recorded.
func (e *Event) Query() (bool, error) {
	c := cuEventQuery(e.dev.ctx, e.handle)
	if c == NotReady {
		return false, nil
	}
	return c == success, e.dev.check(c, "query an event")
}

// Wait polls until the point is reached or ctx ends, as Stream.Wait does.
func (e *Event) Wait(ctx context.Context) error { return poll(ctx, e.Query) }

// Synchronize blocks an OS thread until the point is reached.
func (e *Event) Synchronize() error {
	return e.dev.check(cuEventSynchronize(e.dev.ctx, e.handle), "synchronize an event")
}

// Since returns the device's time between two reached events, to about half a microsecond.
func (e *Event) Since(start *Event) (time.Duration, error) {
	var ms float32
	err := e.dev.check(cuEventElapsedTime(e.dev.ctx, &ms, start.handle, e.handle), "elapsed time")
	return time.Duration(float64(ms) * 1e6), err
}

// Close destroys the event.
func (e *Event) Close() error {
	if e.handle == 0 {
		return nil
	}
	err := e.dev.check(cuEventDestroy(e.dev.ctx, e.handle), "destroy an event")
	e.handle = 0
	return err
}
