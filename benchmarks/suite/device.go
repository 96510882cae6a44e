package suite

import (
	"errors"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
)

// device is a rank's GPU and a stream of it. A nil device is the CPU, where a call returns when its work is done.
type device struct {
	gpu    *cuda.Device
	stream *cuda.Stream
	exec   *cuda.Exec // of the cell that is measured, with Timing.Graph
}

// openDevice makes a stream where c's ranks are on a GPU.
func openDevice(c *comm.Comm) (*device, error) {
	if c.Device().Kind == comm.CPU {
		return nil, nil
	}
	gpu, err := cuda.Open(c.Device().Index)
	if err != nil {
		return nil, fmt.Errorf("rank %d: %w", c.Rank(), err)
	}
	s, err := gpu.NewStream(0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rank %d: %w", c.Rank(), err), gpu.Close())
	}
	return &device{gpu: gpu, stream: s}, nil
}

// handle is the stream for calls of a Comm.
func (d *device) handle() comm.Stream {
	if d == nil {
		return comm.Stream{}
	}
	return comm.Stream{Handle: d.stream.Handle()}
}

// capture makes a graph of what loop enqueues.
func (d *device) capture(loop func() error) error {
	g, err := d.stream.Capture(loop)
	if err != nil {
		return err
	}
	if d.exec, err = g.Instantiate(); err == nil {
		err = d.exec.Upload(d.stream)
	}
	return errors.Join(err, g.Close())
}

// dropGraph frees the graph of capture.
func (d *device) dropGraph() error {
	if d == nil || d.exec == nil {
		return nil
	}
	err := d.exec.Close()
	d.exec = nil
	return err
}

// close frees the stream.
func (d *device) close() error {
	if d == nil {
		return nil
	}
	return errors.Join(d.dropGraph(), d.stream.Close(), d.gpu.Close())
}
