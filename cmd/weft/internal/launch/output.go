package launch

import (
	"bufio"
	"errors"
	"io"
	"sync"
)

// maxLine is where a line without end is broken.
const maxLine = 64 << 10

// output writes whole lines of many processes to two writers that may be the same terminal.
type output struct {
	mu             sync.Mutex
	stdout, stderr io.Writer
}

// copy writes the lines of r to w, each after prefix and in one Write, until r ends. A last line without its newline gets one.
func (o *output) copy(w io.Writer, prefix string, r io.Reader) {
	lines := bufio.NewReaderSize(r, maxLine)
	buf := make([]byte, 0, 1<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			buf = append(append(buf[:0], prefix...), line...)
			if buf[len(buf)-1] != '\n' {
				buf = append(buf, '\n')
			}
			o.write(w, buf)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (o *output) write(w io.Writer, b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = w.Write(b) // nobody is left to tell
}
