package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Decode returns the text of ids, without special tokens if skipSpecial. Bytes that are not UTF-8 become U+FFFD, one
// for each maximal part of a character. Ids that do not exist count as nothing.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	var b []byte
	for _, id := range ids {
		b = append(b, t.decoded(id, skipSpecial)...)
	}
	return lossy(b)
}

func (t *Tokenizer) decoded(id int32, skipSpecial bool) string {
	if !t.has(id) || skipSpecial && t.special[id] {
		return ""
	}
	return t.bytes[id]
}

// Stream decodes ids as they come. One goroutine uses it at a time.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	pending     []byte // the beginning of a character
}

// NewStream returns a Stream that leaves out special tokens if skipSpecial.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	return &Stream{t: t, skipSpecial: skipSpecial}
}

// Push returns the text that id completes, "" if it completes none.
func (s *Stream) Push(id int32) string {
	s.pending = append(s.pending, s.t.decoded(id, s.skipSpecial)...)
	cut := len(s.pending) - unfinished(s.pending)
	text := lossy(s.pending[:cut])
	s.pending = append(s.pending[:0], s.pending[cut:]...)
	return text
}

// Flush returns what is left at the end: U+FFFD for a character that was never completed, else "".
func (s *Stream) Flush() string {
	text := lossy(s.pending)
	s.pending = s.pending[:0]
	return text
}

// unfinished returns the number of bytes at the end of b that more bytes could make a character.
func unfinished(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		tail := b[len(b)-n:]
		if utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return n
			}
			break
		}
	}
	return 0
}

// lossy is the text of b with U+FFFD in place of each maximal part of a character, as the Unicode standard
// recommends and Python's errors="replace" does.
func lossy(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	out.Grow(len(b) + 8)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			for n < len(b) && n < utf8.UTFMax && !utf8.FullRune(b[:n+1]) {
				n++
			}
			out.WriteRune(utf8.RuneError)
		} else {
			out.Write(b[:n])
		}
		b = b[n:]
	}
	return out.String()
}
