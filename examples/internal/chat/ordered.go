package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// orderKey is the variable under which a render's keyOrder lies; no template can write this name.
const orderKey = "\x00order"

// keyOrder remembers in which order the keys of each decoded object came; the template engine's own maps have none.
type keyOrder map[uintptr][]string

func (o keyOrder) list(raw []json.RawMessage, what string) ([]any, error) {
	out := make([]any, len(raw))
	for i, r := range raw {
		v, err := o.value(r)
		if err != nil {
			return nil, fmt.Errorf("%s %d: %w", what, i, err)
		}
		if _, ok := v.(map[string]any); !ok {
			return nil, fmt.Errorf("%s %d is not a JSON object", what, i)
		}
		out[i] = v
	}
	return out, nil
}

// value decodes JSON: objects become map[string]any, whole numbers int.
func (o keyOrder) value(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := o.next(d, 0)
	if err == nil && d.More() {
		err = fmt.Errorf("more than one JSON value")
	}
	return v, err
}

// maxDepth is how deep JSON may be nested: a template may indent it, which takes space for each level of each line.
const maxDepth = 64

func (o keyOrder) next(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("JSON is nested deeper than %d", maxDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		if n, err := strconv.Atoi(t.String()); err == nil {
			return n, nil
		}
		return t.Float64()
	case json.Delim:
		if t == '[' {
			list := []any{}
			for d.More() {
				v, err := o.next(d, depth+1)
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			_, err := d.Token()
			return list, err
		}
		return o.object(d, depth)
	}
	return t, nil
}

func (o keyOrder) object(d *json.Decoder, depth int) (any, error) {
	m := map[string]any{}
	var keys []string
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		key := t.(string) // the decoder sees to it
		v, err := o.next(d, depth+1)
		if err != nil {
			return nil, err
		}
		if _, twice := m[key]; !twice {
			keys = append(keys, key)
		}
		m[key] = v
	}
	o[reflect.ValueOf(m).Pointer()] = keys
	_, err := d.Token()
	return m, err
}

// keysOf returns the keys of m in their order; sorted if m was made by the template.
func (o keyOrder) keysOf(m map[string]any) []string {
	if keys, ok := o[reflect.ValueOf(m).Pointer()]; ok && len(keys) == len(m) {
		return keys
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// style is how dumps writes: as Python's json.dumps with ensure_ascii=False.
type style struct {
	indent          int // spaces a level; negative writes one line
	itemSep, keySep string
	order           keyOrder
	sorted, ascii   bool
}

func (s *style) write(b *strings.Builder, v any, level int) error {
	switch v := v.(type) {
	case map[string]any:
		keys := s.order.keysOf(v)
		if s.sorted {
			keys = slices.Sorted(slices.Values(keys))
		}
		return s.members(b, "{", "}", len(keys), level, func(i int) error {
			s.quote(b, keys[i])
			b.WriteString(s.keySep)
			return s.write(b, v[keys[i]], level+1)
		})
	case []any:
		return s.members(b, "[", "]", len(v), level, func(i int) error { return s.write(b, v[i], level+1) })
	case string:
		s.quote(b, v)
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case int:
		b.WriteString(strconv.Itoa(v))
	case float64:
		text := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(text, ".eIN") {
			text += ".0"
		}
		b.WriteString(text)
	default:
		return fmt.Errorf("tojson: a value of type %T", v)
	}
	return nil
}

func (s *style) members(b *strings.Builder, opening, closing string, n, level int, member func(int) error) error {
	b.WriteString(opening)
	for i := range n {
		if i > 0 {
			b.WriteString(s.itemSep)
		}
		s.newline(b, level+1)
		if err := member(i); err != nil {
			return err
		}
	}
	if n > 0 {
		s.newline(b, level)
	}
	b.WriteString(closing)
	return nil
}

func (s *style) newline(b *strings.Builder, level int) {
	if s.indent >= 0 {
		b.WriteByte('\n')
		b.WriteString(strings.Repeat(" ", s.indent*level))
	}
}

// quote writes a JSON string; without ascii only what JSON demands is escaped.
func (s *style) quote(b *strings.Builder, text string) {
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\b':
			b.WriteString(`\b`)
		case r == '\f':
			b.WriteString(`\f`)
		case r < 0x20 || s.ascii && r > 0x7e && r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		case s.ascii && r >= 0x10000:
			r -= 0x10000
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}
