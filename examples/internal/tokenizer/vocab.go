package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// builder collects tokens and ids from the vocabulary and the added tokens.
type builder struct {
	tokens []string // in the order of the file
	ids    []int32
	of     map[string]int32
}

func (b *builder) claim(token string, id int64) error {
	if id < 0 || id >= maxIDs {
		return fmt.Errorf("id %d is not in [0, %d)", id, maxIDs)
	}
	b.of[token] = int32(id)
	b.tokens, b.ids = append(b.tokens, token), append(b.ids, int32(id))
	return nil
}

// addVocab reads the model's vocabulary.
func (b *builder) addVocab(raw json.RawMessage) error {
	if isNull(raw) {
		return errors.New(`no "vocab"`)
	}
	return eachVocab(raw, func(i int, token string, id int64) error {
		if old, ok := b.of[token]; ok {
			return fmt.Errorf("vocab entry %d: token %q appears twice, with ids %d and %d", i, token, old, id)
		}
		if err := b.claim(token, id); err != nil {
			return fmt.Errorf("vocab entry %d, %q: %w", i, token, err)
		}
		return nil
	})
}

// addAdded reads the added tokens, which may repeat tokens of the vocabulary.
func (b *builder) addAdded(added []addedJSON) error {
	seen := make(map[string]int)
	for i, a := range added {
		if a.ID == nil || a.Content == nil || *a.Content == "" {
			return fmt.Errorf("added_tokens[%d]: wants an id and a content", i)
		}
		if first, ok := seen[*a.Content]; ok {
			return fmt.Errorf("added_tokens[%d]: %q appears twice, first as added_tokens[%d]", i, *a.Content, first)
		}
		seen[*a.Content] = i
		if old, ok := b.of[*a.Content]; ok {
			if int64(old) != *a.ID {
				return fmt.Errorf("added_tokens[%d]: %q has id %d, but %d in the vocabulary", i, *a.Content, *a.ID, old)
			}
			continue
		}
		if err := b.claim(*a.Content, *a.ID); err != nil {
			return fmt.Errorf("added_tokens[%d], %q: %w", i, *a.Content, err)
		}
	}
	return nil
}

// setTables fills the tables by id. Every id from 0 up must have been claimed exactly once.
func (t *Tokenizer) setTables(b *builder, added []addedJSON) error {
	n := len(b.tokens)
	t.ids = b.of
	t.tokens, t.bytes, t.special = make([]string, n), make([]string, n), make([]bool, n)
	filled := make([]bool, n)
	for i, token := range b.tokens {
		id := b.ids[i]
		if int(id) >= n {
			return fmt.Errorf("token %q: id %d, but the vocabulary and the added tokens are %d in all: there are holes below", token, id, n)
		}
		if filled[id] {
			return fmt.Errorf("token %q: id %d is also that of %q", token, id, t.tokens[id])
		}
		filled[id] = true
		t.tokens[id] = token
		t.bytes[id], _ = tokenBytes(token)
	}
	for _, a := range added {
		t.special[*a.ID] = a.Special
	}
	return nil
}

// newModel makes the merge table. Every byte must have a token, and every merge must join two tokens of the
// vocabulary to a third.
func newModel(vocab map[string]int32, m *modelJSON) (model, error) {
	out := model{merges: make(map[uint64]merge)}
	for b, r := range byteRune {
		id, ok := vocab[string(r)]
		if !ok {
			return out, fmt.Errorf("vocab: byte 0x%02x has no token %q: only byte-level vocabularies are supported", b, string(r))
		}
		out.byteID[b] = id
	}
	if isNull(m.Merges) {
		return out, errors.New(`no "merges"`)
	}
	err := eachMerge(m.Merges, func(i int, left, right string) error {
		var ids [3]int32
		for k, token := range []string{left, right, left + right} {
			id, ok := vocab[token]
			if !ok {
				return fmt.Errorf("merges[%d]: (%q, %q): token %q is not in the vocabulary", i, left, right, token)
			}
			ids[k] = id
		}
		p := pair(ids[0], ids[1])
		if old, ok := out.merges[p]; ok {
			return fmt.Errorf("merges[%d]: (%q, %q) is also merges[%d]", i, left, right, old.rank)
		}
		out.merges[p] = merge{rank: int32(i), id: ids[2]}
		return nil
	})
	if err != nil || !m.IgnoreMerges {
		return out, err
	}
	out.whole = make(map[string]int32, len(vocab))
	for token, id := range vocab {
		if b, ok := tokenBytes(token); ok {
			out.whole[b] = id
		}
	}
	return out, nil
}
