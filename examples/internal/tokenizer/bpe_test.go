package tokenizer

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naive merges by the definition: of all pairs of neighbours the one of lowest rank, leftmost first.
func (m *model) naive(piece string) []int32 {
	var ids []int32
	for i := range len(piece) {
		ids = append(ids, m.byteID[piece[i]])
	}
	for {
		best, at := merge{rank: noRank}, -1
		for i := 0; i+1 < len(ids); i++ {
			if mg, ok := m.merges[pair(ids[i], ids[i+1])]; ok && mg.rank < best.rank {
				best, at = mg, i
			}
		}
		if at < 0 {
			return ids
		}
		ids = append(append(ids[:at:at], best.id), ids[at+2:]...)
	}
}

func TestMergesByDefinition(t *testing.T) {
	tok := loadJudge(t)
	words := []string{"requirements", "the", "ing", "er", "a", "aa", " ", "Ġ", "x", "kubernetes", "in", "t", "h", "e"}
	rapid.Check(t, func(t *rapid.T) {
		piece := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 1, 20).Draw(t, "words"), "")
		want := tok.bpe.naive(piece)
		s := newScratch()
		require.Equal(t, want, tok.bpe.mergeLong(nil, piece, &s.long), "heap")
		if len(piece) <= shortPiece {
			require.Equal(t, want, tok.bpe.mergeShort(nil, piece), "array")
		}
		require.Equal(t, want, tok.bpe.appendIDs(nil, piece, s))
		require.Equal(t, want, tok.bpe.appendIDs(nil, piece, s), "from the cache")
	})
}

// A run without a break is one piece. Were its merging quadratic, 40 times the length would take 1,600 times as long. It is the
// time of the processor that counts: the shorter run ends within one turn on a busy machine, the longer one waits for others.
func TestLongRunIsNotQuadratic(t *testing.T) {
	tok := loadJudge(t)
	took := func(n, times int) time.Duration {
		best := time.Hour
		for range 3 {
			begin := cpuTime(t)
			for range times {
				tok.Encode(strings.Repeat("abcdefgh", n))
			}
			best = min(best, (cpuTime(t)-begin)/time.Duration(times))
		}
		return best
	}
	short, long := took(500, 20), took(20_000, 1)
	t.Logf("4,000 bytes take %v, 160,000 take %v", short, long)
	require.Less(t, long, 400*short)
}

// cpuTime is what this process has used.
func cpuTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestCacheIsBounded(t *testing.T) {
	s := newScratch()
	for i := range 3 * maxCached {
		s.remember(strings.Repeat("x", i%7)+string(rune(i+1000)), []int32{1})
		require.LessOrEqual(t, len(s.cache), maxCached)
	}
}

func prompt(t testing.TB) string {
	g := loadGolden(t)
	var b strings.Builder
	for b.Len() < 25_000 {
		for _, c := range g.Chats {
			b.WriteString(c.Text)
		}
		for _, c := range g.Strings {
			b.WriteString(c.Text)
		}
	}
	return b.String()
}

func BenchmarkEncode(b *testing.B) {
	tok, text := loadJudge(b), prompt(b)
	n := len(tok.Encode(text))
	run := func(name string, prepare func()) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				prepare()
				tok.Encode(text)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/token")
		})
	}
	run("cached", func() {})
	run("cold", func() { tok.scratch.Put(newScratch()); tok.scratch.Get() })
}

func BenchmarkLongRun(b *testing.B) {
	tok, text := loadJudge(b), strings.Repeat("abcdefgh", 12_500)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tok.Encode(text)
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := Load(judgePath); err != nil {
			b.Fatal(err)
		}
	}
}
