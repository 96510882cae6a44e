package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLoadRefuses(t *testing.T) {
	split := func(part string) string {
		return `{"type":"Sequence","pretokenizers":[` + part + `]}`
	}
	cases := []struct {
		name, field, value, want string
	}{
		{"type", "model.type", `"Unigram"`, `model: type "Unigram" is not supported, want BPE`},
		{"dropout", "model.dropout", `0.1`, "model: dropout 0.1 is not supported"},
		{"byte fallback", "model.byte_fallback", `true`, "model: byte_fallback is not supported"},
		{"prefix", "model.continuing_subword_prefix", `"##"`, `model: continuing_subword_prefix "##"`},
		{"suffix", "model.end_of_word_suffix", `"</w>"`, `model: end_of_word_suffix "</w>"`},
		{"no model", "model", `null`, `no "model"`},
		{"no vocab", "model.vocab", `null`, `model: no "vocab"`},
		{"vocab list", "model.vocab", `[1]`, "model: vocab is not an object"},
		{"vocab text", "model.vocab", `{"a":"b"}`, `vocab entry 0, "a": id "b" is not a 64-bit integer`},
		{"vocab fraction", "model.vocab", `{"a":0, "b":1.5}`, `vocab entry 1, "b": id 1.5 is not`},
		{"vocab negative", "model.vocab", `{"a":-1}`, `vocab entry 0, "a": id -1 is not in [0, 4194304)`},
		{"vocab huge", "model.vocab", `{"a":2000000000}`, "id 2000000000 is not in [0, 4194304)"},
		{"vocab twice", "model.vocab", `{"a":0,"b":1,"a":2}`, `vocab entry 2: token "a" appears twice, with ids 0 and 2`},
		{"not bytes", "model.vocab", `{"a":0}`, `vocab: byte 0x00 has no token "Ā"`},
		{"no merges", "model.merges", `null`, `model: no "merges"`},
		{"merges object", "model.merges", `{}`, "merges is not an array"},
		{"merge of one", "model.merges", `[["h","e"],["h"]]`, "model: merges[1] has 1 tokens, want a pair"},
		{"merge of three", "model.merges", `[["h","e","y"]]`, "merges[0] is not a pair of strings"},
		{"merge of numbers", "model.merges", `[[1,2]]`, "merges[0] is not a pair of strings"},
		{"merge without space", "model.merges", `["he"]`, `merges[0]: "he" is not a pair of tokens with one space`},
		{"merge with two spaces", "model.merges", `["h e y"]`, `merges[0]: "h e y" is not a pair`},
		{"merge number", "model.merges", `[7]`, `merges[0]: want a string, not "7]"`},
		{"merge of unknown", "model.merges", `["h e","he Ö"]`, `merges[1]: ("he", "Ö"): token "heÖ" is not in the vocabulary`},
		{"merge of unknown left", "model.merges", `["hu e"]`, `merges[0]: ("hu", "e"): token "hu" is not in the vocabulary`},
		{"merge twice", "model.merges", `["h e",["he","y"],["h","e"]]`, `merges[2]: ("h", "e") is also merges[0]`},
		{"same id", "added_tokens", `[{"id":257,"content":"<x>"}]`, `token "<x>": id 257 is also that of "hey"`},
		{"hole", "added_tokens", `[{"id":260,"content":"<x>"}]`, `token "<x>": id 260, but the vocabulary and the added tokens are 259 in all`},
		{"added twice", "added_tokens", `[{"id":258,"content":"<x>"},{"id":259,"content":"<x>"}]`,
			`added_tokens[1]: "<x>" appears twice, first as added_tokens[0]`},
		{"added other id", "added_tokens", `[{"id":258,"content":"hey"}]`, `added_tokens[0]: "hey" has id 258, but 257 in the vocabulary`},
		{"added empty", "added_tokens", `[{"id":258,"content":""}]`, "added_tokens[0]: wants an id and a content"},
		{"added without id", "added_tokens", `[{"content":"x"}]`, "added_tokens[0]: wants an id and a content"},
		{"added negative", "added_tokens", `[{"id":-1,"content":"<x>"}]`, `added_tokens[0], "<x>": id -1 is not in`},
		{"wrong kind", "added_tokens", `7`, `field "added_tokens" is a number`},
		{"normalizer", "normalizer", `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]}`,
			`normalizer: type "Lowercase" is not supported, want NFC or null`},
		{"no pre-tokenizer", "pre_tokenizer", `null`, "pre_tokenizer: no ByteLevel at its end"},
		{"pre-tokenizer", "pre_tokenizer", `{"type":"Metaspace"}`, `pre_tokenizer: part 0: type "Metaspace" is not supported`},
		{"ByteLevel first", "pre_tokenizer", split(`{"type":"ByteLevel"},{"type":"Digits"}`), "part 0, ByteLevel, is followed by Digits"},
		{"Split alone", "pre_tokenizer", split(`{"type":"Split","pattern":{"Regex":"a"},"behavior":"Isolated"}`), "no ByteLevel at its end"},
		{"Split string", "pre_tokenizer", split(`{"type":"Split","pattern":{"String":"a"},"behavior":"Isolated"}`),
			`part 0, Split: pattern String "a" is not supported, want Regex`},
		{"Split behavior", "pre_tokenizer", split(`{"type":"Split","pattern":{"Regex":"a"},"behavior":"Removed"}`),
			`behavior "Removed" with invert false is not supported`},
		{"Split pattern", "pre_tokenizer", split(`{"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated"}`), `part 0, Split: pattern "(a": `},
		{"nesting", "pre_tokenizer", strings.Repeat(`{"type":"Sequence","pretokenizers":[`, 20) + strings.Repeat(`]}`, 20), "nested more than 8 deep"},
		{"post-processor", "post_processor", `{"type":"TemplateProcessing"}`, `post_processor: type "TemplateProcessing" is not supported`},
		{"no decoder", "decoder", `null`, "decoder: is missing, want ByteLevel"},
		{"decoder", "decoder", `{"type":"WordPiece"}`, `decoder: type "WordPiece" is not supported, want ByteLevel`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(tinyWith(t, c.field, c.value), "bad.json")
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "tokenizer: bad.json: ")
		})
	}
}

// tinyWith is tinyFile with one field replaced.
func tinyWith(t testing.TB, field, value string) []byte {
	t.Helper()
	var file, model map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(tinyFile(), &file))
	require.NoError(t, json.Unmarshal(file["model"], &model))
	if inner, ok := strings.CutPrefix(field, "model."); ok {
		model[inner] = json.RawMessage(value)
		var err error
		file["model"], err = json.Marshal(model)
		require.NoError(t, err)
	} else {
		file[field] = json.RawMessage(value)
	}
	data, err := json.Marshal(file)
	require.NoError(t, err)
	return data
}

func TestLoadAccepts(t *testing.T) {
	for _, c := range []struct{ field, value string }{
		{"post_processor", `null`},
		{"normalizer", `null`},
		{"model.unk_token", `"<|x|>"`}, // every byte has a token, so it is never used
		{"model.dropout", `0.0`},
		{"model.type", `null`},
		{"decoder", `{"type":"Sequence","decoders":[{"type":"ByteLevel"}]}`},
		{"truncation", `{"max_length":3}`},
		{"surprise", `[]`},
	} {
		tok, err := Parse(tinyWith(t, c.field, c.value), c.field)
		require.NoError(t, err, c.field)
		require.Equal(t, []int32{257, 258, '!'}, tok.Encode("hey<|x|>!"), c.field)
	}
}

// Every cut of a good file is an error that says where.
func TestLoadTruncated(t *testing.T) {
	tiny := tinyFile()
	for n := range len(tiny) {
		_, err := Parse(tiny[:n], "cut.json")
		require.ErrorContains(t, err, fmt.Sprintf("tokenizer: cut.json: JSON, byte %d of %d: ", n, n))
	}
}

func TestLoadFiles(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(filepath.Join(dir, "none.json"))
	require.ErrorIs(t, err, os.ErrNotExist)
	path := filepath.Join(dir, "huge.json")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, MaxFileBytes+1)) // sparse
	_, err = Load(path)
	require.ErrorContains(t, err, "huge.json: 134217729 bytes > limit 134217728")

	tok, err := LoadFS(fstest.MapFS{"m/tokenizer.json": {Data: tinyFile()}}, "m/tokenizer.json")
	require.NoError(t, err)
	require.Equal(t, 259, tok.VocabSize())
}

// A pattern that backtracks without end gives up in time and loses no text.
func TestEndlessPattern(t *testing.T) {
	re, err := compile("(a|b|ab)*c")
	require.NoError(t, err)
	require.Equal(t, matchTimeout, re.MatchTimeout)
	re.MatchTimeout = 20 * time.Millisecond
	text := "abc" + strings.Repeat("ab", 40)
	want := []string{"abc", strings.Repeat("ab", 40)}
	require.Equal(t, want, pieces(splitter{pattern: re}, text))
	require.Equal(t, want, pieces(splitter{only: re}, text))
}

func ExampleTokenizer() {
	tok, err := Load("../bundled/judge-moe/tokenizer.json")
	if err != nil {
		panic(err)
	}
	ids := tok.Encode("Verdict: three of five<|im_end|>")
	for _, id := range ids {
		fmt.Printf("%d %s\n", id, tok.Token(id))
	}
	fmt.Println(tok.Decode(ids, true))
	// Output:
	// 367 Verdict
	// 25 :
	// 515 Ġthree
	// 296 Ġof
	// 334 Ġfive
	// 2047 <|im_end|>
	// Verdict: three of five
}
