package tokenizer

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// gpt2Pattern is what the ByteLevel pre-tokenizer splits by when the file says use_regex.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// matchTimeout ends the search for one match of a pattern that backtracks without end.
const matchTimeout = 2 * time.Second

// splitter cuts text into pieces: a pre-tokenizer of the file. Exactly one of its fields is set.
type splitter struct {
	qwen    bool            // qwenPattern, by hand
	pattern *regexp2.Regexp // any other; matches are pieces, and so is what lies between
	only    *regexp2.Regexp // matches are pieces, what lies between is dropped
	prefix  bool            // the text with a space before it, unless it begins with one
}

func compile(pattern string) (*regexp2.Regexp, error) {
	re, err := regexp2.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	re.MatchTimeout = matchTimeout
	return re, nil
}

// split calls piece for each piece of text from left to right; pieces are not empty.
func (s splitter) split(text string, piece func(string)) {
	switch {
	case s.qwen:
		for i := 0; i < len(text); {
			end := nextQwen(text, i)
			piece(text[i:end])
			i = end
		}
	case s.pattern != nil:
		splitMatches(s.pattern, text, true, piece)
	case s.only != nil:
		splitMatches(s.only, text, false, piece)
	case s.prefix && text != "" && text[0] != ' ':
		piece(" " + text)
	case text != "":
		piece(text)
	}
}

// splitMatches cuts text at the matches of re. When a search runs out of time, the rest of the text is one piece: a
// valid encoding still, though not the one of the pattern.
func splitMatches(re *regexp2.Regexp, text string, between bool, piece func(string)) {
	runes, offsets := decodeRunes(text)
	done := 0
	err := re.FindRunesMatches(runes, 0, func(m regexp2.MatchView) bool {
		at, n, ok := m.GroupRange(0)
		if !ok || n == 0 {
			return true
		}
		lo, hi := offsets[at], offsets[at+n]
		if between && done < lo {
			piece(text[done:lo])
		}
		piece(text[lo:hi])
		done = hi
		return true
	})
	if done < len(text) && (between || err != nil) {
		piece(text[done:])
	}
}

// decodeRunes returns the characters of text and where each begins, with the end of text last. Bytes that are not
// UTF-8 are U+FFFD of one byte each.
func decodeRunes(text string) (runes []rune, offsets []int) {
	n := utf8.RuneCountInString(text)
	runes, offsets = make([]rune, 0, n), make([]int, 0, n+1)
	for i, r := range text {
		runes, offsets = append(runes, r), append(offsets, i)
	}
	return runes, append(offsets, len(text))
}
