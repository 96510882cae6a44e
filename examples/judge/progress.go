package main

import (
	"fmt"
	"io"
	"os"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress shows one bar a layout on a terminal, and one line a layout elsewhere.
type progress struct {
	w     io.Writer
	total int
	bars  *mpb.Progress // nil when w is no terminal
	bar   *mpb.Bar
	state string
	name  string
}

func newProgress(w io.Writer, total int) *progress {
	p := &progress{w: w, total: total}
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		p.bars = mpb.New(mpb.WithOutput(w), mpb.WithWidth(40))
	}
	return p
}

// isTerminal reports whether f is a character device: a terminal, or /dev/null, where bars do no harm.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// begin says what is going on with a layout.
func (p *progress) begin(name, state string) {
	first := p.name != name
	p.name, p.state = name, state
	switch {
	case p.bars == nil:
		if first {
			fmt.Fprintf(p.w, "%s ...\n", name)
		}
	case first:
		p.bar = p.bars.AddBar(int64(p.total), mpb.PrependDecorators(
			decor.Name(fmt.Sprintf("%-18s", name)), decor.CountersNoUnit("%d/%d")),
			mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_GO)))
	}
}

// done says how many requests are answered.
func (p *progress) done(n int) {
	if p.bar != nil {
		p.bar.SetCurrent(int64(n))
	}
}

// close ends the display.
func (p *progress) close() {
	if p.bars == nil {
		return
	}
	if p.bar != nil && !p.bar.Completed() {
		p.bar.Abort(false)
	}
	p.bars.Wait()
}
