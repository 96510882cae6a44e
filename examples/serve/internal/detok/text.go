package detok

import (
	"unicode/utf8"

	"github.com/weftgo/weft/examples/internal/tokenizer"
)

// Text turns the tokens of one answer into text. One goroutine uses it at a time.
type Text struct {
	stream    *tokenizer.Stream // nil: no text
	matcher   *Matcher
	minTokens int // stop strings count only in what comes after so many tokens
	tokens    int
	offset    int // characters that the stream has given, stop strings or not
}

// Options say how tokens become text.
type Options struct {
	Stops       *Stops // nil has none
	IncludeStop bool
	MinTokens   int
	KeepSpecial bool
}

// New returns the text of an answer that begins at the given offset, in characters; without a tokenizer all text is "".
func New(t *tokenizer.Tokenizer, o Options, offset int) *Text {
	x := &Text{matcher: NewMatcher(o.Stops, o.IncludeStop), minTokens: o.MinTokens, offset: offset}
	if t != nil {
		x.stream = t.NewStream(!o.KeepSpecial)
	}
	return x
}

// Push adds a token. It returns the text that can be sent, where the token's own text begins, counted in characters, and
// the stop string that ends the answer, if any.
func (x *Text) Push(id int32) (text string, offset int, hit string) {
	x.tokens++
	offset = x.offset
	if x.stream == nil {
		return "", offset, ""
	}
	piece := x.stream.Push(id)
	x.offset += utf8.RuneCountInString(piece)
	if x.tokens <= x.minTokens {
		return piece, offset, "" // nothing is held yet
	}
	text, hit = x.matcher.Push(piece)
	return text, offset, hit
}

// Skip adds a token that has no text, such as the stop token at the end.
func (x *Text) Skip() (offset int) {
	x.tokens++
	return x.offset
}

// Flush ends the text without a stop string and returns what is left; hit is a stop string that the last characters made.
func (x *Text) Flush() (text, hit string) {
	if x.stream == nil {
		return "", ""
	}
	piece := x.stream.Flush()
	x.offset += utf8.RuneCountInString(piece)
	if text, hit = x.matcher.Push(piece); hit != "" {
		return text, hit
	}
	return text + x.matcher.Flush(), ""
}

// Split returns the text of a whole prompt, and where each token's text begins in it, in characters [len(ids)].
func Split(t *tokenizer.Tokenizer, ids []int32) (text string, offsets []int) {
	offsets = make([]int, len(ids))
	if t == nil {
		return "", offsets
	}
	stream := t.NewStream(false)
	var b []byte
	at := 0
	for i, id := range ids {
		offsets[i] = at
		piece := stream.Push(id)
		at += utf8.RuneCountInString(piece)
		b = append(b, piece...)
	}
	return string(append(b, stream.Flush()...)), offsets
}
