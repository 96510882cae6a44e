package safetensors

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// MaxHeaderBytes is the longest header that is read; the format's own limit.
const MaxHeaderBytes = 100 << 20

const prefixBytes = 8 // the header length before the header

// File is an open safetensors file. All methods but Close may be called by any number of goroutines at once.
type File struct {
	name     string
	tensors  map[string]Tensor
	names    []string
	metadata map[string]string
	size     int64
	release  func() error
}

// Tensor is one tensor of a [File].
type Tensor struct {
	Name  string // the name in the file
	DType DType
	Shape []int  // empty for a scalar
	Data  []byte // row-major, little-endian; belongs to the File, read only, gone after its Close
}

// Parse reads the header in data, whose bytes the returned tensors share. The name appears in errors.
func Parse(data []byte, name string) (*File, error) {
	f, err := parse(data, name)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %s: %w", name, err)
	}
	return f, nil
}

func parse(data []byte, name string) (*File, error) {
	if len(data) < prefixBytes {
		return nil, fmt.Errorf("%d bytes, shorter than the %d-byte header length%s", len(data), prefixBytes, cutOff)
	}
	n := binary.LittleEndian.Uint64(data)
	if n > MaxHeaderBytes {
		return nil, fmt.Errorf("header length %d bytes > limit %d; the file has %d bytes", n, MaxHeaderBytes, len(data))
	}
	if n > uint64(len(data)-prefixBytes) {
		return nil, fmt.Errorf("header length %d bytes, but the file has only %d after its first %d%s",
			n, len(data)-prefixBytes, prefixBytes, cutOff)
	}
	h, err := parseHeader(data[prefixBytes : prefixBytes+int(n)])
	if err != nil {
		return nil, err
	}
	body := data[prefixBytes+int(n):]
	if err := checkLayout(h.entries, uint64(len(body))); err != nil {
		return nil, err
	}
	f := &File{
		name:     name,
		tensors:  make(map[string]Tensor, len(h.entries)),
		metadata: h.metadata,
		size:     int64(len(data)),
	}
	for _, e := range h.entries { // in the order of their bytes
		f.names = append(f.names, e.name)
		f.tensors[e.name] = Tensor{
			Name: e.name, DType: e.dtype, Shape: e.shape, Data: body[e.begin:e.end:e.end],
		}
	}
	return f, nil
}

// Name returns the name given to Parse, or the path given to Open.
func (f *File) Name() string { return f.name }

// Size returns the bytes of the whole file, header and all.
func (f *File) Size() int64 { return f.size }

// Tensor returns the tensor of that name and whether there is one.
func (f *File) Tensor(name string) (Tensor, bool) {
	t, ok := f.tensors[name]
	return t, ok
}

// Names returns the names of all tensors in the order of their bytes in the file.
func (f *File) Names() []string { return slices.Clone(f.names) }

// Metadata returns the free-form strings of the header's "__metadata__", nil if it has none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }

// Close unmaps a file that Open mapped; reading Data of its tensors afterwards crashes the program. Nobody may use
// the File at the same time. A second Close does nothing.
func (f *File) Close() error {
	release := f.release
	f.release, f.tensors, f.names = nil, nil, nil
	if release == nil {
		return nil
	}
	if err := release(); err != nil {
		return fmt.Errorf("safetensors: %s: close: %w", f.name, err)
	}
	return nil
}
