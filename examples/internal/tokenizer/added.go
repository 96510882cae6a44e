package tokenizer

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is cut out of the text before the rest is split and merged.
type addedToken struct {
	id             int32
	content        string // what is searched for
	singleWord     bool   // only where no word character touches it
	lstrip, rstrip bool   // takes the white space before and after it along
}

// matcher finds added tokens: the leftmost, and the longest of those that start there.
type matcher struct {
	tokens  map[string]addedToken
	lengths [256][]int // of the tokens that start with a byte, longest first
}

func (m *matcher) add(t addedToken) {
	if m.tokens == nil {
		m.tokens = make(map[string]addedToken)
	}
	if _, ok := m.tokens[t.content]; ok {
		return // two tokens may normalise to one; the first wins
	}
	m.tokens[t.content] = t
	l := &m.lengths[t.content[0]]
	if !slices.Contains(*l, len(t.content)) {
		*l = append(*l, len(t.content))
		slices.SortFunc(*l, func(a, b int) int { return b - a })
	}
}

// match is an added token in text[start:stop].
type match struct {
	start, stop int
	id          int32
}

// next returns the first added token in text[from:], where from is the stop of the last match.
func (m *matcher) next(text string, from int) (match, bool) {
	if len(m.tokens) == 0 {
		return match{}, false
	}
	for i := from; i < len(text); {
		t, ok := m.at(text, i)
		if !ok {
			i++
			continue
		}
		stop := i + len(t.content)
		if t.singleWord && (endsInWord(text[:i]) || startsWithWord(text[stop:])) {
			i = stop // matches do not overlap, not even those that are refused
			continue
		}
		start := i
		if t.lstrip {
			start = from + spaceBefore(text[from:start])
		}
		if t.rstrip {
			stop = spaceAfter(text, stop)
		}
		return match{start, stop, t.id}, true
	}
	return match{}, false
}

func (m *matcher) at(text string, i int) (addedToken, bool) {
	for _, n := range m.lengths[text[i]] {
		if n <= len(text)-i {
			if t, ok := m.tokens[text[i:i+n]]; ok {
				return t, true
			}
		}
	}
	return addedToken{}, false
}

// spaceBefore returns where the white space at the end of text begins.
func spaceBefore(text string) int {
	i := len(text)
	for i > 0 {
		r, n := utf8.DecodeLastRuneInString(text[:i])
		if !unicode.IsSpace(r) {
			break
		}
		i -= n
	}
	return i
}

// spaceAfter returns where the white space at i ends.
func spaceAfter(text string, i int) int {
	for i < len(text) {
		r, n := utf8.DecodeRuneInString(text[i:])
		if !unicode.IsSpace(r) {
			break
		}
		i += n
	}
	return i
}

func endsInWord(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWord(r)
}

func startsWithWord(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWord(r)
}

// isWord is \w of Unicode TR 18: alphabetic characters, marks, decimal digits, connectors and joiners.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, newerLetters, newerNumbers, unicode.Nl, unicode.Other_Alphabetic, unicode.M,
		unicode.Nd, unicode.Pc, unicode.Join_Control)
}
