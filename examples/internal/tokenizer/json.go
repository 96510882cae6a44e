package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// eachVocab calls fn for each entry of a JSON object of numbers, in the order of the file.
func eachVocab(raw json.RawMessage, fn func(i int, token string, id int64) error) error {
	d := scanner{rest: raw}
	if !d.take('{') {
		return errors.New("vocab is not an object")
	}
	for i := 0; !d.take('}'); i++ {
		d.take(',')
		token, err := d.text()
		if err != nil {
			return fmt.Errorf("vocab entry %d: %w", i, err)
		}
		d.take(':')
		id, err := d.integer()
		if err != nil {
			return fmt.Errorf("vocab entry %d, %q: %w", i, token, err)
		}
		if err := fn(i, token, id); err != nil {
			return err
		}
	}
	return nil
}

// eachMerge calls fn for each merge, written as ["a", "b"] or "a b".
func eachMerge(raw json.RawMessage, fn func(i int, left, right string) error) error {
	d := scanner{rest: raw}
	if !d.take('[') {
		return errors.New("merges is not an array")
	}
	for i := 0; !d.take(']'); i++ {
		d.take(',')
		var left, right string
		if d.take('[') {
			var pair [2]string
			n := 0
			for ; !d.take(']'); n++ {
				d.take(',')
				s, err := d.text()
				if err != nil || n == len(pair) {
					return fmt.Errorf("merges[%d] is not a pair of strings", i)
				}
				pair[n] = s
			}
			if n != len(pair) {
				return fmt.Errorf("merges[%d] has %d tokens, want a pair", i, n)
			}
			left, right = pair[0], pair[1]
		} else {
			s, err := d.text()
			if err != nil {
				return fmt.Errorf("merges[%d]: %w", i, err)
			}
			var ok bool
			left, right, ok = strings.Cut(s, " ")
			if !ok || strings.Contains(right, " ") {
				return fmt.Errorf("merges[%d]: %q is not a pair of tokens with one space between", i, s)
			}
		}
		if err := fn(i, left, right); err != nil {
			return err
		}
	}
	return nil
}

// scanner reads JSON that is known to be well formed, in the order of the file and without building maps.
type scanner struct{ rest []byte }

// take skips white space and then c, if it is next.
func (d *scanner) take(c byte) bool {
	d.rest = bytes.TrimLeft(d.rest, " \t\r\n")
	if len(d.rest) == 0 || d.rest[0] != c {
		return false
	}
	d.rest = d.rest[1:]
	return true
}

func (d *scanner) text() (string, error) {
	if !d.take('"') {
		return "", fmt.Errorf("want a string, not %.20q", d.rest)
	}
	for i := 0; i < len(d.rest); i++ {
		switch d.rest[i] {
		case '\\':
			i++
		case '"':
			body := d.rest[:i]
			d.rest = d.rest[i+1:]
			if bytes.IndexByte(body, '\\') < 0 {
				return strings.ToValidUTF8(string(body), "\ufffd"), nil
			}
			var s string
			err := json.Unmarshal([]byte(`"`+string(body)+`"`), &s)
			return s, err
		}
	}
	return "", errors.New("string without end")
}

func (d *scanner) integer() (int64, error) {
	d.take(' ')
	n := 0
	for n < len(d.rest) && !bytes.ContainsRune([]byte(",}] \t\r\n"), rune(d.rest[n])) {
		n++
	}
	word := string(d.rest[:n])
	d.rest = d.rest[n:]
	id, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("id %.20s is not a 64-bit integer", word)
	}
	return id, nil
}
