package detok

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weftgo/weft/examples/internal/bundled"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/tokenizer"
)

func judge(t testing.TB) *tokenizer.Tokenizer {
	folder, err := checkpoint.OpenFS(bundled.FS(), bundled.Name)
	require.NoError(t, err)
	defer folder.Close()
	tok, err := folder.Tokenizer()
	require.NoError(t, err)
	return tok
}

// I-51: a stop string across pieces is never sent in part, and what was held back is sent at the end.
func TestStopAcrossPieces(t *testing.T) {
	for _, c := range []struct {
		stops   string
		include bool
		pieces  string // | separates
		want    string // what each piece gives
		hit     string
	}{
		{"END", false, "aE|N|D|x", "a||", "END"},
		{"END", true, "aE|N|Dx", "a||END", "END"},
		{"END", false, "aE|N|x", "a||ENx|", ""},
		{"END", false, "E|N", "|" + "|EN", ""},
		{"abcd,bc", false, "a|b|c|d", "||a", "bc"}, // the first to end
		{"abcd,bc", false, "abcd", "a", "bc"},
		{"bc,abc", false, "xabc", "x", "abc"}, // the longest of those
		{"aab", false, "aa|a|b", "|a|", "aab"},
		{"", false, "a|b", "a|b|", ""},
	} {
		var stops []string
		if c.stops != "" {
			stops = strings.Split(c.stops, ",")
		}
		m := NewMatcher(Compile(stops), c.include)
		var got []string
		hit := ""
		for _, p := range strings.Split(c.pieces, "|") {
			var text string
			if text, hit = m.Push(p); true {
				got = append(got, text)
			}
			if hit != "" {
				break
			}
		}
		if hit == "" {
			got = append(got, m.Flush())
		}
		require.Equal(t, c.want, strings.Join(got, "|"), "%+v", c)
		require.Equal(t, c.hit, hit, "%+v", c)
	}
}

// However a text is cut, the result is the same as from the whole.
func TestCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.StringMatching(`[ab]{1,4}`)
		stops := rapid.SliceOfN(letters, 0, 3).Draw(t, "stops")
		whole := rapid.StringMatching(`[abc]{0,20}`).Draw(t, "text")
		want, wantHit := whole, ""
	search:
		for end := range len(whole) + 1 {
			for n := end; n > 0; n-- { // the longest that ends here
				for _, s := range stops {
					if len(s) == n && strings.HasSuffix(whole[:end], s) {
						want, wantHit = whole[:end-n], s
						break search
					}
				}
			}
		}
		m := NewMatcher(Compile(stops), false)
		got, hit := "", ""
		for rest := whole; rest != "" && hit == ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			var text string
			text, hit = m.Push(rest[:n])
			got, rest = got+text, rest[n:]
		}
		if hit == "" {
			got += m.Flush()
		}
		if got != want || hit != wantHit {
			t.Fatalf("%q with %q: %q, %q; want %q, %q", whole, stops, got, hit, want, wantHit)
		}
	})
}

// Stop strings that nearly match all the time cost little: 64 of 1024 letters in a megabyte of the same letter.
func TestManyLongStops(t *testing.T) {
	stops := make([]string, 64)
	for i := range stops {
		stops[i] = strings.Repeat("a", 1000+i%24) + "b"
	}
	m := NewMatcher(Compile(stops), false)
	begun, sent := time.Now(), 0
	for range 1 << 18 {
		text, hit := m.Push("aaaa")
		require.Empty(t, hit)
		sent += len(text)
	}
	require.Equal(t, 1<<20-1023, sent)
	text, hit := m.Push("b")
	require.Equal(t, stops[23], hit)
	require.Empty(t, text)
	require.Less(t, time.Since(begun), 20*time.Second, "0.6 s on two shared cores")
}

// Offsets count the characters before a token, and pieces add up.
func TestOffsets(t *testing.T) {
	tok := judge(t)
	ids := tok.Encode("Grüße 😀 three of five")
	x := New(tok, Options{}, 10)
	text := ""
	for _, id := range ids {
		piece, offset, hit := x.Push(id)
		require.Empty(t, hit)
		require.Equal(t, 10+utf8.RuneCountInString(text), offset)
		text += piece
	}
	rest, _ := x.Flush()
	require.Equal(t, "Grüße 😀 three of five", text+rest)
	whole, offsets := Split(tok, ids)
	require.Equal(t, text, whole)
	require.Equal(t, 0, offsets[0])
	require.True(t, isSorted(offsets))
}

func isSorted(x []int) bool {
	for i := 1; i < len(x); i++ {
		if x[i] < x[i-1] {
			return false
		}
	}
	return true
}

func TestMinTokens(t *testing.T) {
	tok := judge(t)
	ids := tok.Encode(" three three three")
	n := len(ids) / 3
	x := New(tok, Options{Stops: Compile([]string{"three"}), MinTokens: n}, 0)
	text, hit := "", ""
	for _, id := range ids {
		var piece string
		piece, _, hit = x.Push(id)
		text += piece
		if hit != "" {
			break
		}
	}
	require.Equal(t, " three ", text)
	require.Equal(t, "three", hit)
}

func TestNoTokenizer(t *testing.T) {
	x := New(nil, Options{}, 0)
	text, offset, hit := x.Push(3)
	require.Equal(t, "", text)
	require.Zero(t, offset)
	require.Empty(t, hit)
}
