package tokenizer

import "strings"

// Encode returns the ids of text. Added tokens in the text, special or not, become their ids; nothing is put before
// or after. Bytes that are not UTF-8 are kept and come out of TokenBytes as they were.
func (t *Tokenizer) Encode(text string) []int32 {
	s, _ := t.scratch.Get().(*scratch)
	if s == nil {
		s = newScratch()
	}
	defer t.scratch.Put(s)
	out := make([]int32, 0, len(text)/3+8)
	for from := 0; ; {
		m, ok := t.raw.next(text, from)
		if !ok {
			return t.encodeGap(out, text[from:], s)
		}
		out = t.encodeGap(out, text[from:m.start], s)
		out = append(out, m.id)
		from = m.stop
	}
}

// encodeGap appends the ids of text between added tokens of the raw text.
func (t *Tokenizer) encodeGap(out []int32, text string, s *scratch) []int32 {
	if t.normalize != nil && text != "" {
		text = t.normalize(text)
	}
	for from := 0; ; {
		m, ok := t.cooked.next(text, from)
		if !ok {
			return t.encodePieces(out, text[from:], t.splits, s)
		}
		out = t.encodePieces(out, text[from:m.start], t.splits, s)
		out = append(out, m.id)
		from = m.stop
	}
}

// encodePieces splits text by the first splitter, the pieces by the rest, and merges what comes out at the end.
func (t *Tokenizer) encodePieces(out []int32, text string, splits []splitter, s *scratch) []int32 {
	if text == "" {
		return out
	}
	if len(splits) == 0 {
		return t.bpe.appendIDs(out, text, s)
	}
	if splits[0].qwen && len(splits) == 1 { // the usual case, without a call per piece
		for i := 0; i < len(text); {
			end := nextQwen(text, i)
			out = t.bpe.appendIDs(out, text[i:end], s)
			i = end
		}
		return out
	}
	splits[0].split(text, func(piece string) {
		out = t.encodePieces(out, piece, splits[1:], s)
	})
	return out
}

// scratch is what one Encode needs; the pool of them makes Encode safe for many goroutines without a lock.
type scratch struct {
	cache map[string][]int32 // ids of short pieces seen before
	long  chain
}

const (
	maxCached    = 1 << 14 // pieces
	maxCachedLen = 64      // bytes of a piece
)

func newScratch() *scratch { return &scratch{cache: make(map[string][]int32)} }

func (s *scratch) remember(piece string, ids []int32) {
	if len(s.cache) >= maxCached {
		clear(s.cache)
	}
	// Cloned, so that the cache does not keep the whole text alive.
	s.cache[strings.Clone(piece)] = append([]int32(nil), ids...)
}
