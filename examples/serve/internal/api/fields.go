package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
)

// fields reads the members of a request one by one; the first error stays. null is the same as absent.
type fields struct {
	raw map[string]json.RawMessage
	err *Error
}

func newFields(body []byte) (*fields, *Error) {
	d := json.NewDecoder(bytes.NewReader(body))
	f := &fields{}
	if err := d.Decode(&f.raw); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, BadRequest("", "the body is empty; it must be a JSON object")
		}
		return nil, BadRequest("", "the body is not a JSON object: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, BadRequest("", "the body has more than one JSON value")
	}
	if f.raw == nil {
		return nil, BadRequest("", "the body is null; it must be a JSON object")
	}
	return f, nil
}

func (f *fields) fail(param, format string, args ...any) {
	if f.err == nil {
		f.err = BadRequest(param, format, args...)
	}
}

// take returns a member and forgets it; ok is false if it is absent or null.
func (f *fields) take(name string) (raw json.RawMessage, ok bool) {
	raw, ok = f.raw[name]
	delete(f.raw, name)
	return raw, ok && string(raw) != "null"
}

// unknown returns the names that nobody took.
func (f *fields) unknown() []string {
	var names []string
	for name := range f.raw {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (f *fields) string(name string) (s string) {
	if raw, ok := f.take(name); ok && json.Unmarshal(raw, &s) != nil {
		f.fail(name, "%s must be a string", name)
	}
	return s
}

// object reads a member that is an object; the empty one if it is absent.
func (f *fields) object(name string) *fields {
	raw, ok := f.take(name)
	if !ok {
		return &fields{}
	}
	o, bad := newFields(raw)
	if bad != nil {
		f.fail(name, "%s must be an object", name)
		return &fields{}
	}
	return o
}

func (f *fields) bool(name string, absent bool) bool {
	v := absent
	if raw, ok := f.take(name); ok && json.Unmarshal(raw, &v) != nil {
		f.fail(name, "%s must be true or false", name)
	}
	return v
}

// int reads a whole number in [lo, hi]; 4.0 and true are none.
func (f *fields) int(name string, absent, lo, hi int64) int64 {
	raw, ok := f.take(name)
	if !ok {
		return absent
	}
	v, err := strconv.ParseInt(string(raw), 10, 64)
	switch {
	case err != nil:
		f.fail(name, "%s must be a whole number, not %s", name, clip(raw))
	case v < lo || v > hi:
		f.fail(name, "%s is %d; it must be in [%d, %d]", name, v, lo, hi)
	default:
		return v
	}
	return absent
}

func (f *fields) float(name string, absent float64) float32 {
	v := absent
	if raw, ok := f.take(name); ok && (json.Unmarshal(raw, &v) != nil || math.Abs(v) > math.MaxFloat32) {
		f.fail(name, "%s must be a number, not %s", name, clip(raw))
	}
	return float32(v)
}

// ids reads a list of token ids.
func (f *fields) ids(name string) []int32 {
	raw, ok := f.take(name)
	if !ok {
		return nil
	}
	ids, err := parseIDs(raw)
	if err != nil {
		f.fail(name, "%s must be a list of token ids", name)
	}
	return ids
}

// parseIDs reads a JSON list of whole numbers that fit an id. It is strict: no 1.0, null or nested list.
func parseIDs(raw json.RawMessage) ([]int32, error) {
	var ids []int32
	if err := json.Unmarshal(raw, &ids); err != nil {
		return nil, err
	}
	if bytes.Contains(raw, []byte("null")) {
		return nil, errors.New("null among ids")
	}
	return ids, nil
}

// strings reads a string or a list of strings.
func (f *fields) strings(name string) []string {
	raw, ok := f.take(name)
	if !ok {
		return nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}
	}
	var list []*string
	if json.Unmarshal(raw, &list) != nil || slices.Contains(list, nil) {
		f.fail(name, "%s must be a string or a list of strings", name)
		return nil
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = *s
	}
	return out
}

// clip shows the beginning of what was sent.
func clip(raw []byte) string {
	const most = 40
	if len(raw) > most {
		return string(bytes.ToValidUTF8(raw[:most], nil)) + "..."
	}
	return string(raw)
}
