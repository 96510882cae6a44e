package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfc returns the text in Unicode's Normalization Form C. Bytes that are not UTF-8 stay as they are.
//
// Package norm makes text "stream-safe": it puts a combining grapheme joiner into runs of more than 30 marks, which
// no tokenizer does. Text in which it did goes through composeLong instead.
func nfc(text string) string {
	const joiner = "\u034f"
	out := norm.NFC.String(text)
	if len(out) == len(text) && out == text || strings.Count(out, joiner) == strings.Count(text, joiner) {
		return out
	}
	return composeLong(text)
}

// composeLong is NFC by the definition: decompose, put marks into canonical order, compose.
func composeLong(text string) string {
	type mark struct {
		bytes string
		class uint8 // canonical combining class; 0 starts a new sequence
	}
	var seq []mark
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		char := text[i : i+n]
		i += n
		if r == utf8.RuneError { // a byte that is not UTF-8, or U+FFFD itself
			seq = append(seq, mark{bytes: char})
			continue
		}
		for _, r := range norm.NFD.String(char) {
			s := string(r)
			seq = append(seq, mark{s, norm.NFD.PropertiesString(s).CCC()})
		}
	}
	for lo := 0; lo < len(seq); {
		hi := lo + 1
		for hi < len(seq) && seq[hi].class != 0 {
			hi++
		}
		from := lo
		if seq[lo].class == 0 {
			from++
		}
		slices.SortStableFunc(seq[from:hi], func(a, b mark) int { return int(a.class) - int(b.class) })
		lo = hi
	}
	out := seq[:0]
	starter, last := -1, uint8(0) // index in out; class of the last mark kept after it
	for _, m := range seq {
		if starter >= 0 && (last < m.class || len(out) == starter+1) {
			pair := out[starter].bytes + m.bytes
			if c := norm.NFC.String(pair); c != pair && len([]rune(c)) == 1 {
				out[starter].bytes = c
				continue
			}
		}
		out = append(out, m)
		last = m.class
		if m.class == 0 {
			starter, last = len(out)-1, 0
		}
	}
	var b strings.Builder
	for _, m := range out {
		b.WriteString(m.bytes)
	}
	return b.String()
}
