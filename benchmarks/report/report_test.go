package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite testdata")

func report(t *testing.T, args ...string) string {
	dir := t.TempDir()
	require.NoError(t, run(append([]string{"-o", dir}, args...), io.Discard, io.Discard))
	return dir
}

// The page of two recorded runs and one comparison with peers, its drawings left out: their last digits differ by machine.
func TestPage(t *testing.T) {
	dir := report(t, "--format", "svg", "testdata/before.jsonl", "testdata/after.jsonl", "testdata/peers.jsonl")
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	require.NoError(t, err)
	require.NotRegexp(t, `(src|href)="?(http|//)|@import|url\(["']?http`, string(page), "the page must load nothing")
	short := regexp.MustCompile(`(?s)<svg.*?</svg>`).ReplaceAllString(string(page), "<svg/>")
	golden := filepath.Join("testdata", "page.golden.html")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(short), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), short)
	require.Contains(t, short, `class="ratio faster"`)
	require.Contains(t, short, `class="ratio wrong"`)
}

// Every drawing is well-formed, shows every series in its legend, and shares no id with another of the page.
func TestDrawings(t *testing.T) {
	dir := report(t, "testdata/before.jsonl", "testdata/after.jsonl")
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	require.NoError(t, err)
	drawings := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(string(page), -1)
	require.Len(t, drawings, 4) // two charts with sizes, two views each
	ids := map[string]bool{}
	for _, svg := range drawings {
		d := xml.NewDecoder(strings.NewReader(svg))
		var text strings.Builder
		for {
			tok, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			switch tok := tok.(type) {
			case xml.CharData:
				text.Write(tok)
			case xml.StartElement:
				for _, a := range tok.Attr {
					if a.Name.Local == "id" {
						require.False(t, ids[a.Value], a.Value)
						ids[a.Value] = true
					}
				}
			}
		}
		require.Contains(t, text.String(), "before")
		require.Contains(t, text.String(), "after")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.png"))
	require.NoError(t, err)
	require.Len(t, files, 4)
	data, err := os.ReadFile(files[0])
	require.NoError(t, err)
	img, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	require.Greater(t, img.Bounds().Dx(), 300)
}

func TestCompare(t *testing.T) {
	for speed, want := range map[float64]string{1.3: "1.30× faster", 0.8: "0.80× slower", 1.04: "1.04× same", 0.96: "0.96× same", 0.0042: "0.004× slower"} {
		text, class := compare(speed)
		require.Equal(t, want, text+" "+class)
	}
	require.Equal(t, []string{"120 ns", "1.5 µs", "12 ms", "3 s"}, []string{duration(0.12), duration(1.5), duration(12e3), duration(3e6)})
	require.Equal(t, []float64{0, 2, 2.5}, []float64{median(nil), median([]float64{3, 1, 2}), median([]float64{4, 2, 3, 1})})
}

func TestTicks(t *testing.T) {
	labels := func(high float64) (out []string) {
		for _, tick := range evenTicks(high) {
			out = append(out, strings.TrimSpace(tick.Label))
		}
		return out
	}
	require.Equal(t, []string{"0", "2", "4", "6", "8", "10", "12"}, labels(13.5))
	require.Equal(t, []string{"0", "0.01", "0.02", "0.03", "0.04"}, labels(0.045))
	require.NotEmpty(t, labels(0))
	var sizes []string
	for _, tick := range sizeTicks([]int64{0, 8, 1536, 4096, 2 << 20, 1 << 30}) {
		sizes = append(sizes, tick.Label)
	}
	require.Equal(t, []string{"8", "1.5K", "4K", "2M", "1G"}, sizes)
	require.Len(t, timeTicks(1, 100), 19) // three decades, eight minor ticks between each two
}

func TestRefuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.jsonl")
	require.NoError(t, os.WriteFile(empty, []byte("{\"record\":\"header\"}\n"), 0o644))
	for want, args := range map[string][]string{
		"no measurements":          {empty},
		"no such file":             {"none.jsonl"},
		"--format gif":             {"--format", "gif", empty},
		"not a results file of -J": {"main.go"},
		"expected \"<file>":        {},
	} {
		require.ErrorContains(t, run(append(args, "-o", t.TempDir()), io.Discard, io.Discard), want)
	}
}

// Every recorded file that begins with a header can be read, those of earlier versions too. The rest are of other tools.
func TestRecorded(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.jsonl", "*/*.jsonl"} {
		list, err := filepath.Glob(filepath.Join("..", "results", pattern))
		require.NoError(t, err)
		files = append(files, list...)
	}
	var read int
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		first, _, _ := strings.Cut(string(text), "\n")
		if !regexp.MustCompile(`"record": ?"header"`).MatchString(first) {
			continue
		}
		read++
		var errOut bytes.Buffer
		err = run([]string{"--format", "svg", "-o", t.TempDir(), file}, io.Discard, &errOut)
		switch name := filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file); name {
		case "processes/h200-x1-2026-12-01.jsonl": // one row a process: nothing to draw
			require.ErrorContains(t, err, "no measurements that can be plotted (52 rows without op and time_us)")
		case "p2p/h200-x1-2026-12-01.jsonl":
			require.NoError(t, err)
			require.Contains(t, errOut.String(), "not shown: 28 lines of kind tune")
		default:
			require.NoError(t, err, file)
			require.Empty(t, errOut.String(), file)
		}
	}
	require.Greater(t, read, 10)
}
