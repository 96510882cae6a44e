package tokenizer

import (
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// MaxFileBytes is the largest tokenizer.json that is read. Qwen3's has 11 MB.
const MaxFileBytes = 128 << 20

// Tokenizer is a loaded tokenizer.json. Any number of goroutines may use it at once.
type Tokenizer struct {
	bpe       model
	normalize func(string) string // nil: text is taken as it is
	splits    []splitter
	raw       matcher // added tokens found before normalisation
	cooked    matcher // and after it

	tokens  []string // of each id, as the file writes it
	bytes   []string // of each id, what it decodes to
	special []bool
	ids     map[string]int32 // of each string of tokens

	scratch sync.Pool // *scratch
}

// Load reads the tokenizer.json at path.
func Load(path string) (*Tokenizer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	defer f.Close()
	return read(f, path)
}

// LoadFS reads the named tokenizer.json of fsys.
func LoadFS(fsys fs.FS, name string) (*Tokenizer, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	defer f.Close()
	return read(f, name)
}

// Parse reads a tokenizer.json from memory; the name appears in errors. It keeps no reference to data.
func Parse(data []byte, name string) (*Tokenizer, error) {
	t, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", name, err)
	}
	return t, nil
}

func read(f fs.File, name string) (*Tokenizer, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", name, err)
	}
	if info.Size() > MaxFileBytes {
		return nil, fmt.Errorf("tokenizer: %s: %d bytes > limit %d", name, info.Size(), MaxFileBytes)
	}
	data, err := readUpTo(f, MaxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", name, err)
	}
	return Parse(data, name)
}

// VocabSize returns the number of token ids; all ids from 0 to VocabSize-1 exist. A model's own vocabulary may be
// larger, padded with ids that decode to nothing.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// ID returns the id of a token written as in the file, such as "Ġthe" or "<|im_end|>".
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// Token returns the token as the file writes it, "" for an id that does not exist.
func (t *Tokenizer) Token(id int32) string {
	if !t.has(id) {
		return ""
	}
	return t.tokens[id]
}

// TokenBytes returns the bytes that the token stands for, which need not be whole characters, nil for an id that
// does not exist. The caller owns the result.
func (t *Tokenizer) TokenBytes(id int32) []byte {
	if !t.has(id) {
		return nil
	}
	return []byte(t.bytes[id])
}

// IsSpecial says whether the id is a special token, one that Decode can leave out.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.has(id) && t.special[id] }

func (t *Tokenizer) has(id int32) bool { return id >= 0 && int(id) < len(t.tokens) }
