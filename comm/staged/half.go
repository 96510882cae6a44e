package staged

import (
	"github.com/weftgo/weft/comm"
)

// align is where tensors begin in the workspace: what a GPU's allocator would give.
const align = 256

func roundUp(n int) int { return (n + align - 1) &^ (align - 1) }

// window is what one pass takes of every part: rows [lo, hi) of each segment where cut, else all of them, and columns
// [left, right).
type window struct {
	cut         bool
	lo, hi      int
	left, right int
}

// half is the source or the destination of a part in one pass. The buffer is segments of rows rows; the gathering and
// scattering forms have one for each rank, and a window takes the same rows of each.
type half struct {
	b           comm.Buffer // on the host; the zero Buffer where the operation has none
	segments    int
	lo, hi      int // of each segment
	rows        int // of a segment
	left, right int
	moved       bool // it is copied; otherwise only its place is needed
	at          int  // offset in the workspace
}

func newHalf(b comm.Buffer, segments, rows int, moved bool, w *window) half {
	h := half{b: b, segments: segments, rows: rows, hi: rows, left: w.left, right: w.right, moved: moved}
	if w.cut {
		h.lo, h.hi = w.lo, w.hi
	}
	h.right = min(h.right, b.Cols())
	return h
}

// numRows is the rows that are in the workspace.
func (h *half) numRows() int { return h.segments * (h.hi - h.lo) }

func (h *half) rowBytes() int { return (h.right - h.left) * h.b.DType().Size() }

func (h *half) bytes() int { return h.numRows() * h.rowBytes() }

// place gives the half its bytes of the workspace from at on and returns where the next may begin.
func (h *half) place(at int) int {
	h.at = at
	return roundUp(at + h.bytes())
}

// device is the half as the driver sees it: dense rows.
func (h *half) device(work comm.Buffer) comm.Buffer {
	if h.b.IsZero() {
		return comm.Buffer{}
	}
	cols := h.right - h.left
	return comm.At(work.Device(), work.Addr()+uintptr(h.at), h.b.DType(), h.numRows(), cols, cols)
}

// pack copies the rows into the image of the workspace.
func (h *half) pack(image []byte) { h.each(image, func(dst, row []byte) { copy(dst, row) }) }

// unpack copies the rows out of it.
func (h *half) unpack(image []byte) { h.each(image, func(src, row []byte) { copy(row, src) }) }

// each calls fn with every row in the image and in the buffer.
func (h *half) each(image []byte, fn func(image, row []byte)) {
	n := h.rowBytes()
	if !h.moved || n == 0 {
		return
	}
	first := h.left * h.b.DType().Size()
	at := h.at
	for s := range h.segments {
		for i := h.lo; i < h.hi; i++ {
			fn(image[at:at+n], h.b.RowBytes(s*h.rows + i)[first:first+n])
			at += n
		}
	}
}
