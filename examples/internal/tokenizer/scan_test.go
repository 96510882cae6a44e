package tokenizer

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// oldClass is classOf by Go's own tables alone.
func oldClass(r rune) class {
	switch {
	case r == '\r' || r == '\n':
		return newline
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

func pieces(s splitter, text string) []string {
	var out []string
	s.split(text, func(p string) { out = append(out, p) })
	return out
}

// What the tokenizers library's own engine (Oniguruma) cuts differently from regexp2, and cases of each alternative.
func TestScan(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"'\u017fx", "'\u017f|x"},
		{"'\u212aa", "'\u212aa"},
		{"'lLa'Re1", "'lL|a|'Re|1"},
		{"'lx'", "'lx|'"},
		{"'r", "'r"},
		{"a\u0085b", "a|\u0085b"},
		{"\u2028\n a", "\u2028\n| a"},
		{"  \u00a0x", "  |\u00a0x"},
		{"\u1c80\u1c89 x", "\u1c80\u1c89| x"},
		{"\U00016d40\U00016d70", "\U00016d40|\U00016d70"},
		{"x\u200b y", "x|\u200b| y"},
		{" \n \n  x", " \n \n| | x"},
		{"a...\r\n\nb", "a|...\r\n\n|b"},
		{"a \r\n ", "a| \r\n| "},
		{"123", "1|2|3"},
		{" 1", " |1"},
		{" -1", " -|1"},
		{"\t-", "\t|-"},
		{"\t\ta", "\t|\ta"},
	} {
		require.Equal(t, c.want, strings.Join(pieces(splitter{qwen: true}, c.text), "|"), "%+q", c.text)
	}
}

func TestScanEqualsPattern(t *testing.T) {
	re, err := compile(qwenPattern)
	require.NoError(t, err)
	alphabet := []rune("aZéſK漢Ⅷ٣1 \t\r\n\u00a0\u2028\u0085'sSlLdDmMtTrRvVeE.-_\u0301\u200b😀\ufffd")
	rapid.Check(t, func(t *rapid.T) {
		text := strings.ReplaceAll(rapid.StringOfN(rapid.RuneFrom(alphabet), 0, 40, -1).Draw(t, "text"), "'ſ", "'s")
		require.Equal(t, pieces(splitter{pattern: re}, text), pieces(splitter{qwen: true}, text))
	})
}
