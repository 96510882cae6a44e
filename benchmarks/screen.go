package main

import (
	"io"
	"time"

	"github.com/vbauerster/cupwriter"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// screen is where tables go. On a terminal a bar under them shows how far the sweep is; when tables go elsewhere and
// errors to a terminal, the bar is there.
type screen struct {
	out      io.Writer
	progress *mpb.Progress // nil without a terminal
	onOut    bool          // bar and tables share a terminal
	bar      *mpb.Bar
}

func newScreen(out, errOut io.Writer) *screen {
	s := &screen{out: out}
	switch {
	case cupwriter.New(out, false).IsTerminal():
		s.progress, s.onOut = mpb.New(mpb.WithOutput(out), mpb.WithWidth(48)), true
	case cupwriter.New(errOut, false).IsTerminal():
		s.progress = mpb.New(mpb.WithOutput(errOut), mpb.WithWidth(48))
	}
	return s
}

// Write prints above the bar.
func (s *screen) Write(p []byte) (int, error) {
	if s.onOut {
		return s.progress.Write(p)
	}
	return s.out.Write(p)
}

// begin shows a bar of steps; the func that it returns removes it.
func (s *screen) begin(name string, steps int) func() {
	if s.progress == nil {
		return func() {}
	}
	s.bar = s.progress.AddBar(int64(steps), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(name+" "), decor.CountersNoUnit("%d/%d")),
		mpb.AppendDecorators(decor.NewElapsed(decor.ET_STYLE_GO, time.Now())))
	return func() {
		s.bar.Abort(true)
		s.bar = nil
	}
}

// step moves the bar by one.
func (s *screen) step() {
	if s.bar != nil {
		s.bar.Increment()
	}
}

func (s *screen) close() {
	if s.progress != nil {
		s.progress.Wait()
	}
}
