package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxIDs bounds the vocabulary; the largest known ones have a quarter of a million tokens.
const maxIDs = 1 << 22

// readUpTo reads all of r, which must not have more than limit bytes.
func readUpTo(r io.Reader, limit int64) ([]byte, error) {
	var b bytes.Buffer
	n, err := b.ReadFrom(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, fmt.Errorf("more than %d bytes", limit)
	}
	return b.Bytes(), nil
}

// file is the outline of a tokenizer.json. Truncation and padding do not matter here, as callers give their own.
type file struct {
	AddedTokens   []addedJSON     `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         *modelJSON      `json:"model"`
}

type addedJSON struct {
	ID         *int64  `json:"id"`
	Content    *string `json:"content"`
	SingleWord bool    `json:"single_word"`
	LStrip     bool    `json:"lstrip"`
	RStrip     bool    `json:"rstrip"`
	Normalized bool    `json:"normalized"`
	Special    bool    `json:"special"`
}

type modelJSON struct {
	Type                    *string         `json:"type"`
	Dropout                 *float64        `json:"dropout"`
	UnkToken                *string         `json:"unk_token"`
	ContinuingSubwordPrefix *string         `json:"continuing_subword_prefix"`
	EndOfWordSuffix         *string         `json:"end_of_word_suffix"`
	ByteFallback            bool            `json:"byte_fallback"`
	IgnoreMerges            bool            `json:"ignore_merges"`
	Vocab                   json.RawMessage `json:"vocab"`
	Merges                  json.RawMessage `json:"merges"`
}

func parse(data []byte) (*Tokenizer, error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("%d bytes > limit %d", len(data), MaxFileBytes)
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, jsonError(err, len(data))
	}
	if f.Model == nil {
		return nil, errors.New(`no "model"`)
	}
	if err := f.Model.check(); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	t := &Tokenizer{}
	b := &builder{of: make(map[string]int32)}
	err := b.addVocab(f.Model.Vocab)
	if err == nil {
		t.bpe, err = newModel(b.of, f.Model) // before added tokens, which never merge
	}
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if err := b.addAdded(f.AddedTokens); err != nil {
		return nil, err
	}
	if err := t.setTables(b, f.AddedTokens); err != nil {
		return nil, err
	}
	if err := t.setNormalizer(f.Normalizer); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	for _, a := range f.AddedTokens {
		t.addMatch(a)
	}
	if t.splits, err = parseSplits(f.PreTokenizer); err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	if err := checkByteLevel(f.PostProcessor, true); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	if err := checkByteLevel(f.Decoder, false); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	return t, nil
}

// jsonError adds where it went wrong.
func jsonError(err error, size int) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("JSON, byte %d of %d: %w", syntax.Offset, size, err)
	case errors.As(err, &kind):
		return fmt.Errorf("JSON, byte %d of %d: field %q is a %s", kind.Offset, size, kind.Field, kind.Value)
	}
	return fmt.Errorf("JSON: %w", err)
}

// check refuses what would change ids and is not done here.
func (m *modelJSON) check() error {
	set := func(s *string) bool { return s != nil && *s != "" }
	switch {
	case m.Type != nil && *m.Type != "BPE":
		return fmt.Errorf("type %q is not supported, want BPE", *m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		return fmt.Errorf("dropout %v is not supported, want null", *m.Dropout)
	case m.ByteFallback:
		return errors.New("byte_fallback is not supported: want a byte-level vocabulary")
	case set(m.ContinuingSubwordPrefix):
		return fmt.Errorf("continuing_subword_prefix %q is not supported, want null", *m.ContinuingSubwordPrefix)
	case set(m.EndOfWordSuffix):
		return fmt.Errorf("end_of_word_suffix %q is not supported, want null", *m.EndOfWordSuffix)
	}
	// unk_token is never used: newModel requires a token for each byte.
	return nil
}

// addMatch puts an added token where it is searched for.
func (t *Tokenizer) addMatch(a addedJSON) {
	tok := addedToken{id: int32(*a.ID), content: *a.Content, singleWord: a.SingleWord, lstrip: a.LStrip, rstrip: a.RStrip}
	if !a.Normalized {
		t.raw.add(tok)
		return
	}
	if t.normalize != nil { // it is decoded in that form, too
		tok.content = t.normalize(tok.content)
		t.tokens[tok.id] = tok.content
		t.bytes[tok.id], _ = tokenBytes(tok.content)
	}
	t.cooked.add(tok)
}
