package cuda

import (
	"fmt"
	"unsafe"
)

// Copy enqueues a copy between device memory, peers' memory and pinned host memory; the addresses say which. Go memory is
// refused by nobody and wrong: it may move. Use Upload and Download for that.
func (s *Stream) Copy(dst, src uintptr, bytes int) error {
	if bytes == 0 {
		return nil
	}
	return s.dev.check(cuMemcpyAsync(s.dev.ctx, dst, src, uintptr(bytes), s.handle), "copy")
}

// Upload copies host memory to the device and returns when src may change again. For set-up and tests, not inside
// Capture; an inner loop stages through Pinned and Copy.
func (s *Stream) Upload(dst uintptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	if err := s.dev.checkf(copyHost(s.dev.ctx, dst, 0, unsafe.Pointer(unsafe.SliceData(src)), uintptr(len(src)), s.handle), "upload %d bytes", len(src)); err != nil {
		return err
	}
	return nil
}

// Download copies device memory to the host after the stream's earlier work, and returns when dst is filled.
// Not inside Capture.
func (s *Stream) Download(dst []byte, src uintptr) error {
	if len(dst) == 0 {
		return nil
	}
	return s.dev.checkf(copyHost(s.dev.ctx, 0, src, unsafe.Pointer(unsafe.SliceData(dst)), uintptr(len(dst)), s.handle), "download %d bytes", len(dst))
}

// Fill enqueues setting n bytes.
func (s *Stream) Fill(dst uintptr, value byte, n int) error {
	if n == 0 {
		return nil
	}
	return s.dev.check(cuMemsetD8Async(s.dev.ctx, dst, value, uintptr(n), s.handle), "fill")
}

// Fill32 enqueues setting n 32-bit words; dst is a multiple of 4.
func (s *Stream) Fill32(dst uintptr, value uint32, n int) error {
	if n == 0 {
		return nil
	}
	if dst%4 != 0 {
		return &Error{Call: fmt.Sprintf("fill32 at %#x: not a multiple of 4", dst), Device: s.dev.info.Ordinal, Code: InvalidValue}
	}
	return s.dev.check(cuMemsetD32Async(s.dev.ctx, dst, value, uintptr(n), s.handle), "fill32")
}
