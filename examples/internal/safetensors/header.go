package safetensors

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
)

const metadataKey = "__metadata__"

// entry is one tensor of the header; its bytes are [begin, end) of what follows the header.
type entry struct {
	name       string
	dtype      DType
	shape      []int
	begin, end uint64
}

type header struct {
	entries  []entry
	metadata map[string]string
}

// headerReader walks the JSON token by token: a map would hide keys that appear twice.
type headerReader struct {
	dec *json.Decoder
}

func parseHeader(data []byte) (header, error) {
	if !utf8.Valid(data) {
		return header{}, fmt.Errorf("header of %d bytes is not UTF-8", len(data))
	}
	r := headerReader{dec: json.NewDecoder(bytes.NewReader(data))}
	r.dec.UseNumber()
	h, err := r.header()
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("JSON ends too early")
		}
		return header{}, fmt.Errorf("header, byte %d of %d: %w", r.dec.InputOffset(), len(data), err)
	}
	return h, nil
}

func (r headerReader) header() (header, error) {
	var h header
	seen := make(map[string]bool)
	err := r.object("header", func(key string) error {
		if seen[key] {
			return fmt.Errorf("tensor %q appears twice", key)
		}
		seen[key] = true
		var err error
		if key == metadataKey {
			h.metadata, err = r.metadata()
			return err
		}
		e, err := r.entry(key)
		h.entries = append(h.entries, e)
		return err
	})
	if err != nil {
		return h, err
	}
	if tok, err := r.dec.Token(); err != io.EOF {
		if err != nil {
			return h, err
		}
		return h, fmt.Errorf("%v follows the JSON object", tok)
	}
	return h, nil
}

// object reads an object and calls field once for each key, which must read the value.
func (r headerReader) object(what string, field func(key string) error) error {
	if err := r.delim(what, '{'); err != nil {
		return err
	}
	for r.dec.More() {
		tok, err := r.dec.Token()
		if err != nil {
			return err
		}
		key, ok := tok.(string)
		if !ok {
			return fmt.Errorf("%s: %v where a key should be", what, tok)
		}
		if err := field(key); err != nil {
			return err
		}
	}
	return r.delim(what, '}')
}

func (r headerReader) delim(what string, want json.Delim) error {
	tok, err := r.dec.Token()
	if err != nil {
		return err
	}
	if tok != want {
		return fmt.Errorf("%s: %v where %q should be", what, tok, want.String())
	}
	return nil
}

func (r headerReader) metadata() (map[string]string, error) {
	m := make(map[string]string)
	err := r.object(metadataKey, func(key string) error {
		if _, ok := m[key]; ok {
			return fmt.Errorf("%s: key %q appears twice", metadataKey, key)
		}
		s, err := r.text(metadataKey + ": " + strconv.Quote(key))
		m[key] = s
		return err
	})
	return m, err
}

func (r headerReader) text(what string) (string, error) {
	tok, err := r.dec.Token()
	if err != nil {
		return "", err
	}
	s, ok := tok.(string)
	if !ok {
		return "", fmt.Errorf("%s is %v, want a string", what, tok)
	}
	return s, nil
}

func (r headerReader) entry(name string) (entry, error) {
	e := entry{name: name}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("tensor %q: "+format, append([]any{name}, args...)...)
	}
	var offsets []uint64
	seen := make(map[string]bool, 3)
	err := r.object(fmt.Sprintf("tensor %q", name), func(key string) error {
		if seen[key] {
			return fail("field %q appears twice", key)
		}
		seen[key] = true
		switch key {
		case "dtype":
			s, err := r.text(fmt.Sprintf("tensor %q: dtype", name))
			if err != nil {
				return err
			}
			if e.dtype = parseDType(s); e.dtype == 0 {
				return fail("dtype %q is not one of F64 F32 F16 BF16 F8_E4M3 F8_E5M2, I or U of 8 to 64 bits, BOOL", s)
			}
		case "shape":
			dims, err := r.numbers(fmt.Sprintf("tensor %q: shape", name))
			if err != nil {
				return err
			}
			e.shape = make([]int, len(dims))
			for i, d := range dims {
				if d > maxInt {
					return fail("shape %v: dimension %d does not fit an int", dims, i)
				}
				e.shape[i] = int(d)
			}
		case "data_offsets":
			var err error
			offsets, err = r.numbers(fmt.Sprintf("tensor %q: data_offsets", name))
			return err
		default: // the format lets writers add fields
			var skip json.RawMessage
			return r.dec.Decode(&skip)
		}
		return nil
	})
	if err != nil {
		return e, err
	}
	for _, key := range []string{"dtype", "shape", "data_offsets"} {
		if !seen[key] {
			return e, fail("no field %q", key)
		}
	}
	if len(offsets) != 2 {
		return e, fail("data_offsets %v: want [begin, end]", offsets)
	}
	e.begin, e.end = offsets[0], offsets[1]
	return e, nil
}

const maxInt = uint64(^uint(0) >> 1)

// numbers reads an array of non-negative integers.
func (r headerReader) numbers(what string) ([]uint64, error) {
	if err := r.delim(what, '['); err != nil {
		return nil, err
	}
	var out []uint64
	for r.dec.More() {
		tok, err := r.dec.Token()
		if err != nil {
			return nil, err
		}
		num, ok := tok.(json.Number)
		if !ok {
			return nil, fmt.Errorf("%s: %v where a number should be", what, tok)
		}
		n, err := strconv.ParseUint(num.String(), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %s is not a non-negative 64-bit integer", what, num)
		}
		out = append(out, n)
	}
	return out, r.delim(what, ']')
}

// cutOff ends the error of a file that is shorter than it says.
const cutOff = ": the file is cut off; copy it again"

// checkLayout sorts the entries by their bytes and checks that they tile exactly the size bytes after the header.
func checkLayout(entries []entry, size uint64) error {
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	at, last := uint64(0), ""
	for _, e := range entries {
		if e.begin > e.end || e.end > size {
			hint := ""
			if e.begin <= e.end {
				hint = cutOff
			}
			return fmt.Errorf("tensor %q: bytes [%d, %d) are not within the %d bytes after the header%s", e.name, e.begin, e.end, size, hint)
		}
		want, ok := shapeBytes(e.shape, e.dtype)
		if !ok {
			return fmt.Errorf("tensor %q: shape %v of %s overflows 64 bits", e.name, e.shape, e.dtype)
		}
		if want != e.end-e.begin {
			return fmt.Errorf("tensor %q: shape %v of %s needs %d bytes, data_offsets [%d, %d) give %d",
				e.name, e.shape, e.dtype, want, e.begin, e.end, e.end-e.begin)
		}
		if e.begin < at {
			return fmt.Errorf("tensor %q: bytes [%d, %d) overlap tensor %q, which ends at %d", e.name, e.begin, e.end, last, at)
		}
		if e.begin > at {
			return fmt.Errorf("tensor %q: begins at byte %d, which leaves a hole of %d bytes from %d", e.name, e.begin, e.begin-at, at)
		}
		at, last = e.end, e.name
	}
	if at != size {
		return fmt.Errorf("%d bytes follow the header, its %d tensors use %d", size, len(entries), at)
	}
	return nil
}

// shapeBytes returns the bytes of a tensor and false when the product does not fit 64 bits.
func shapeBytes(shape []int, d DType) (uint64, bool) {
	n := uint64(d.Size())
	overflow := false
	for _, dim := range shape {
		if dim == 0 {
			return 0, true
		}
		hi, lo := bits.Mul64(n, uint64(dim))
		overflow = overflow || hi != 0
		n = lo
	}
	return n, !overflow
}
