package tokenizer

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// tinyFile is a whole tokenizer.json with the 256 bytes, two merges and one special token.
func tinyFile() []byte {
	vocab := make(map[string]int)
	for b, r := range byteRune {
		vocab[string(r)] = b
	}
	vocab["he"], vocab["hey"] = 256, 257
	data, err := json.Marshal(map[string]any{
		"added_tokens":  []any{map[string]any{"id": 258, "content": "<|x|>", "special": true}},
		"normalizer":    map[string]any{"type": "NFC"},
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
		"decoder":       map[string]any{"type": "ByteLevel"},
		"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": []any{"h e", []string{"he", "y"}}},
	})
	if err != nil {
		panic(err)
	}
	return data
}

// FuzzLoad: no file panics or hangs, and one that loads encodes and decodes.
func FuzzLoad(f *testing.F) {
	tiny := tinyFile()
	f.Add(tiny)
	f.Add(tiny[:len(tiny)/2])
	f.Add([]byte(strings.Replace(string(tiny), `"h e"`, `"h f"`, 1)))
	f.Add([]byte(`{"model":{"vocab":{"a":0,"a":1},"merges":[]}}`))
	f.Add([]byte(`{"added_tokens":[{"id":-1,"content":"x"}],"model":{"vocab":{},"merges":[[]]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Parse(data, "fuzz")
		if err != nil {
			return
		}
		text := "hey, <|x|> it's 12 \xff e\u0301"
		for _, id := range tok.Encode(text) {
			if tok.TokenBytes(id) == nil {
				t.Fatalf("id %d of %d", id, tok.VocabSize())
			}
		}
	})
}

// FuzzRoundTrip: without special tokens in it, text comes back as its NFC, and bytes that are not UTF-8 as they were;
// the stream gives what Decode gives, at whatever ids.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{"", " a  b\r\n", "e\u0301", "it'S 1234 漢字 😀", "\xff\xf0\x9f", strings.Repeat("ab", 100), "a" + strings.Repeat("\u0301\u0327", 40)} {
		f.Add(s)
	}
	tok := loadJudge(f)
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "<|") {
			return
		}
		ids := tok.Encode(text)
		var raw []byte
		for _, id := range ids {
			raw = append(raw, tok.TokenBytes(id)...)
		}
		if want := nfc(text); string(raw) != want {
			t.Fatalf("%q became %q, want %q", text, raw, want)
		}
		got := tok.Decode(ids, false)
		if utf8.ValidString(text) && got != nfc(text) {
			t.Fatalf("%q became %q", text, got)
		}
		s, streamed := tok.NewStream(false), ""
		for _, id := range ids {
			streamed += s.Push(id)
		}
		if streamed += s.Flush(); streamed != got {
			t.Fatalf("%q: streamed %q, decoded %q", text, streamed, got)
		}
	})
}

// FuzzScan: the scanner cuts as the regular expression does, but for two things the expression engine does not know:
// letters and numbers newer than its tables, and the long s as an s.
func FuzzScan(f *testing.F) {
	for _, s := range []string{"", "a b", "it's I'LL  x", " \r\n\n  x ", "12 ٣Ⅷ", "...\r\n\r", "\u00a0\u2003x", "'\u017f", "\xffa\xff", "é e\u0301"} {
		f.Add(s)
	}
	re, err := compile(qwenPattern)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range text {
			if r == '\u017f' || classOf(r) != oldClass(r) {
				return
			}
		}
		var want, got []string
		splitter{pattern: re}.split(text, func(p string) { want = append(want, p) })
		splitter{qwen: true}.split(text, func(p string) { got = append(got, p) })
		if strings.Join(got, "|") != strings.Join(want, "|") || len(got) != len(want) {
			t.Fatalf("%q: scanned %q, matched %q", text, got, want)
		}
	})
}

// FuzzNFC: the composition by definition agrees with package norm wherever norm adds no joiners.
func FuzzNFC(f *testing.F) {
	for _, s := range []string{"e\u0301", "\u1112\u1161\u11ab", "s\u0323\u0307", "\u0f71\u0f72", "a\u0327\u0301\u0301", "\xff\u0301", "\u0344", "\u2126"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want := norm.NFC.String(text)
		if strings.Count(want, "\u034f") != strings.Count(text, "\u034f") {
			return
		}
		if got := composeLong(text); got != want {
			t.Fatalf("%+q: %+q, want %+q", text, got, want)
		}
	})
}
