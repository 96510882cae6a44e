package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// Graph is captured work that has not run.
type Graph struct {
	dev    *Device
	handle uintptr
}

// Capture records what fn enqueues on s, and on streams joined to it by events, instead of running it. The mode is
// thread-local, so other goroutines may allocate or wait meanwhile; fn must call from this goroutine, whose thread is
// locked while fn runs. When fn or the capture fails there is no graph and s works as before.
func (s *Stream) Capture(fn func() error) (*Graph, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const threadLocal = 1
	if err := s.dev.check(cuStreamBeginCapture(s.dev.ctx, s.handle, threadLocal), "begin capture"); err != nil {
		return nil, err
	}
	ended := false
	end := func() (*Graph, error) {
		ended = true
		g := &Graph{dev: s.dev}
		err := s.dev.check(cuStreamEndCapture(s.dev.ctx, s.handle, &g.handle), "end capture")
		return g, err
	}
	defer func() {
		if !ended { // fn panicked
			if g, _ := end(); g.handle != 0 {
				_ = g.Close()
			}
		}
	}()
	fail := fn()
	g, err := end()
	if fail != nil || err != nil {
		if g.handle != 0 {
			err = errors.Join(err, g.Close())
		}
		return nil, errors.Join(fail, err)
	}
	return g, nil
}

// Capturing reports whether work enqueued on s is being captured.
func (s *Stream) Capturing() (bool, error) {
	var status int32
	err := s.dev.check(cuStreamIsCapturing(s.dev.ctx, s.handle, &status), "capture status")
	return status != 0, err
}

// NumNodes returns the number of operations.
func (g *Graph) NumNodes() (int, error) {
	var n uintptr
	err := g.dev.check(cuGraphGetNodes(g.dev.ctx, g.handle, unsafe.Pointer(nil), &n), "count nodes")
	return int(n), err
}

// Instantiate makes the graph executable. The graph may be closed afterwards.
func (g *Graph) Instantiate() (*Exec, error) {
	e := &Exec{dev: g.dev}
	if err := g.dev.check(cuGraphInstantiateWithFlags(g.dev.ctx, &e.handle, g.handle, 0), "instantiate a graph"); err != nil {
		return nil, err
	}
	return e, nil
}

// Close destroys the graph.
func (g *Graph) Close() error {
	if g.handle == 0 {
		return nil
	}
	err := g.dev.check(cuGraphDestroy(g.dev.ctx, g.handle), "destroy a graph")
	g.handle = 0
	return err
}

// Exec is a graph that can run, one run at a time.
type Exec struct {
	dev    *Device
	handle uintptr
}

// Update gives the executable new parameters, of a graph with the same operations. When the graphs differ too much the
// error says so and Exec is as before: Instantiate again.
func (e *Exec) Update(g *Graph) error {
	var result int32
	c := execUpdate(e.dev.ctx, e.handle, g.handle, &result)
	if c == success {
		return nil
	}
	return e.dev.check(c, fmt.Sprintf("update a graph (result %d); instantiate it anew", result))
}

// Upload prepares the first Launch on s, so that it takes no longer than later ones.
func (e *Exec) Upload(s *Stream) error {
	return e.dev.check(cuGraphUpload(e.dev.ctx, e.handle, s.handle), "upload a graph")
}

// Launch enqueues the whole graph on s.
func (e *Exec) Launch(s *Stream) error {
	return e.dev.check(cuGraphLaunch(e.dev.ctx, e.handle, s.handle), "launch a graph")
}

// Close destroys the executable; a running one ends first.
func (e *Exec) Close() error {
	if e.handle == 0 {
		return nil
	}
	err := e.dev.check(cuGraphExecDestroy(e.dev.ctx, e.handle), "destroy an executable graph")
	e.handle = 0
	return err
}
