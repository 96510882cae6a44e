package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// qwenPattern is the split pattern of Qwen2 and Qwen3 tokenizers, which nextQwen implements.
const qwenPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// class is what the pattern sees of a character.
type class uint8

const (
	other   class = iota // nothing of the below; also each byte that is not UTF-8
	letter               // \p{L}
	number               // \p{N}
	space                // \s, but
	newline              // \r and \n
)

var asciiClass = func() (t [utf8.RuneSelf]class) {
	for r := range rune(len(t)) {
		t[r] = classOf(r)
	}
	return t
}()

func classOf(r rune) class {
	switch {
	case r == '\r' || r == '\n':
		return newline
	case unicode.IsLetter(r) || r >= firstNewer && unicode.Is(newerLetters, r):
		return letter
	case unicode.IsNumber(r) || r >= firstNewer && unicode.Is(newerNumbers, r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// at returns the class and length of the character at text[i:], which must not be empty.
func at(text string, i int) (class, int) {
	if b := text[i]; b < utf8.RuneSelf {
		return asciiClass[b], 1
	}
	r, n := utf8.DecodeRuneInString(text[i:])
	if r == utf8.RuneError {
		return other, n // U+FFFD itself is a symbol too
	}
	return classOf(r), n
}

// run returns the end of the run of one class that starts at i.
func run(text string, i int, want class) int {
	for i < len(text) {
		c, n := at(text, i)
		if c != want {
			break
		}
		i += n
	}
	return i
}

// nextQwen returns the end of the piece of text that begins at i < len(text). Each step below is one alternative of
// qwenPattern, in its order; together they match any character, so that pieces leave no gaps.
func nextQwen(text string, i int) int {
	c, n := at(text, i)
	if text[i] == '\'' {
		if end := contraction(text, i); end > 0 {
			return end
		}
	}
	// [^\r\n\p{L}\p{N}]?\p{L}+
	if c == letter {
		return run(text, i+n, letter)
	}
	next, nextLen := newline, 0 // at the end of the text: a class that continues nothing below
	if i+n < len(text) {
		next, nextLen = at(text, i+n)
	}
	if (c == space || c == other) && next == letter {
		return run(text, i+n+nextLen, letter)
	}
	// \p{N}
	if c == number {
		return i + n
	}
	// ' ?[^\s\p{L}\p{N}]+[\r\n]*'
	if c == other {
		return run(text, run(text, i+n, other), newline)
	}
	if text[i] == ' ' && next == other {
		return run(text, run(text, i+n+nextLen, other), newline)
	}
	return spaces(text, i)
}

// contraction returns the end of (?i:'s|'t|'re|'ve|'m|'ll|'d) at i, 0 if there is none. The long s U+017F folds to s.
func contraction(text string, i int) int {
	rest := text[i+1:]
	if rest == "" {
		return 0
	}
	switch rest[0] | 0x20 {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v':
		if len(rest) > 1 && rest[1]|0x20 == 'e' {
			return i + 3
		}
	case 'l':
		if len(rest) > 1 && rest[1]|0x20 == 'l' {
			return i + 3
		}
	}
	if len(rest) > 1 && rest[:2] == "\u017f" {
		return i + 3
	}
	return 0
}

// spaces matches \s*[\r\n]+|\s+(?!\S)|\s+ at i, where white space begins: up to the last line break of the run; else
// the whole run at the end of the text; else all of it but the last character, which goes with what follows; else
// that one character.
func spaces(text string, i int) int {
	end, last, lastBreak := i, i, 0
	for end < len(text) {
		c, n := at(text, end)
		if c != space && c != newline {
			break
		}
		last = end
		end += n
		if c == newline {
			lastBreak = end
		}
	}
	switch {
	case lastBreak > 0:
		return lastBreak
	case end == len(text) || last == i:
		return end
	}
	return last
}
