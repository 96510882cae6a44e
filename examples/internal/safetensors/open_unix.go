//go:build unix

package safetensors

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Open maps the file at path into memory and reads its header. Pages are read when first touched; the file must
// not be shortened while it is open. Close unmaps it.
func Open(path string) (*File, error) {
	data, release, err := mapFile(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	f, err := Parse(data, path)
	if err != nil {
		_ = release()
		return nil, err
	}
	f.release = release
	return f, nil
}

func mapFile(path string) ([]byte, func() error, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close() // the mapping outlives it
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a regular file (%s)", path, info.Mode())
	}
	size := info.Size()
	if size == 0 { // the kernel maps no empty range
		return nil, func() error { return nil }, nil
	}
	if uint64(size) > maxInt {
		return nil, nil, fmt.Errorf("%s: %d bytes do not fit the address space", path, size)
	}
	data, err := unix.Mmap(int(file.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: map %d bytes: %w", path, size, err)
	}
	return data, func() error { return unix.Munmap(data) }, nil
}
