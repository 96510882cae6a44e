package published

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/plan"
)

var (
	refit  = flag.Bool("refit", false, "print the constants that the fit rows give, as Go")
	update = flag.Bool("update", false, "rewrite the error table in docs/planner.md")
)

func round(x float64) float64 {
	y, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64)
	if err != nil {
		panic(err)
	}
	if math.Abs(y) < 1e-2 {
		return 0
	}
	return y
}

// TestConstants fits every system again on its fit rows; the constants in plan must be as good as what comes out.
func TestConstants(t *testing.T) {
	for _, e := range plan.Exchangers {
		f, best := FitExchanger(e, free[e.Name])
		ss := samples(e.Name, "fit")
		have := misfit(ss, func(s sample) float64 { return e.Time(s.table.Load(s.row)) },
			func(s sample) float64 { return s.table.Micros(s.row, e.Scheme) })
		if *refit {
			for _, n := range append(free[e.Name], "Combine") {
				*exchangerField(&f, n) = round(*exchangerField(&f, n))
			}
			fmt.Printf("%#v\n", f)
			continue
		}
		require.NotEmpty(t, free[e.Name], e.Name)
		require.LessOrEqual(t, len(free[e.Name]), 6, e.Name)
		require.Less(t, have, best+0.005, "%s: refit with -refit", e.Name)
		require.LessOrEqual(t, e.LinkRate, ss[0].table.LinkGBs, e.Name)
		require.LessOrEqual(t, e.NetRate, ss[0].table.NetGBs, e.Name)
		require.Equal(t, len(ss), e.Fitted, "%s: Fitted", e.Name)
	}
	for _, c := range plan.Collectives {
		f, best := FitCollective(c, free[c.Name])
		ss := samples(c.Name, "fit")
		have := misfit(ss, func(s sample) float64 { return c.Time(s.row.Bytes, s.row.Ranks) },
			func(s sample) float64 { return s.table.Micros(s.row, plan.Flat) })
		if *refit {
			for _, n := range free[c.Name] {
				*collectiveField(&f, n) = round(*collectiveField(&f, n))
			}
			fmt.Printf("%#v\n", f)
			continue
		}
		require.NotEmpty(t, free[c.Name], c.Name)
		require.Less(t, have, best+0.005, "%s: refit with -refit", c.Name)
		require.LessOrEqual(t, c.Rate, ss[0].table.LinkGBs, c.Name)
		require.Equal(t, len(ss), c.Fitted, "%s: Fitted", c.Name)
	}
}

// TestTables checks the data itself: sources, both uses in about equal parts, no row twice.
func TestTables(t *testing.T) {
	ts := Tables()
	require.NotEmpty(t, ts)
	for _, tab := range ts {
		require.NotEmpty(t, tab.Source, tab.Name)
		seen, uses := map[string]bool{}, map[string]int{}
		for _, r := range tab.Rows {
			require.False(t, seen[r.String()], "%s: %s twice", tab.Name, r)
			seen[r.String()] = true
			uses[r.Use]++
			require.Greater(t, tab.Micros(r, plan.Flat), 0.0, "%s: %s", tab.Name, r)
			require.Contains(t, []string{"exchange", "collective"}, tab.Kind)
		}
		require.Equal(t, len(tab.Rows), uses["fit"]+uses["test"], tab.Name)
		require.InDelta(t, uses["fit"], uses["test"], 3, tab.Name)
	}
}

// TestConversion checks GB/s against rows that a source gives in both units.
func TestConversion(t *testing.T) {
	for _, c := range []struct {
		table    string
		row      Row
		us, rate float64
		scheme   plan.Scheme
	}{
		{"uccl_p5en", Row{Op: "dispatch", Wire: "fp8", Ranks: 8, Tokens: 4096}, 500, 320, plan.Hierarchical},
		{"uccl_p5en", Row{Op: "combine", Wire: "bf16", Ranks: 8, Tokens: 4096}, 973, 319, plan.Hierarchical},
		{"uccl_p5en", Row{Op: "dispatch", Wire: "fp8", Ranks: 16, Tokens: 4096}, 1196, 50, plan.Hierarchical},
		{"uccl_b200", Row{Op: "combine", Wire: "bf16", Ranks: 32, Tokens: 4096}, 3724, 57, plan.Hierarchical},
		{"deepep_v1_ll", Row{Op: "dispatch", Wire: "fp8", Ranks: 16, Tokens: 128}, 118, 63, plan.Expanded},
		{"deepep_v1_ll", Row{Op: "combine", Wire: "bf16", Ranks: 16, Tokens: 128}, 195, 74, plan.Expanded},
	} {
		tab := named(t, c.table)
		r := c.row
		r.GBs = c.rate
		require.InEpsilon(t, c.us, tab.Micros(r, c.scheme), 0.03, "%s %s", c.table, r)
	}
}

func named(t *testing.T, name string) Table {
	for _, tab := range Tables() {
		if tab.Name == name {
			return tab
		}
	}
	t.Fatalf("no table %s", name)
	return Table{}
}

// harder returns what stands below the error table: predictions beyond the fitted range, and with another system's constants.
func harder(t *testing.T) string {
	ex, co := Extrapolate()
	require.LessOrEqual(t, ex, 0.25)
	require.LessOrEqual(t, co, 0.25)
	var worst, sum float64
	ts := Transfers()
	for _, tr := range ts {
		worst, sum = math.Max(worst, tr.Median), sum+tr.Median/float64(len(ts))
	}
	require.LessOrEqual(t, worst, 0.25)
	return fmt.Sprintf("Harder: fitted on the smaller half of each system's rows, the larger half is predicted with a median error of "+
		"%.1f %% (exchanges) and %.1f %% (collectives). With another system's constants and nothing fitted, %d pairs of low-latency "+
		"exchanges over the same network are predicted with a median error of %.1f %% on average, %.1f %% at worst.\n",
		100*ex, 100*co, len(ts), 100*sum, 100*worst)
}

// TestErrorTable prints the error table, holds the bars, and compares it with docs/planner.md.
func TestErrorTable(t *testing.T) {
	lines := Evaluate()
	text := Markdown(lines)
	ex, co := Overall()
	text += fmt.Sprintf("\nMedian absolute error over all test rows: exchanges %.1f %%, collectives of 1 MiB and more %.1f %%.\n",
		100*ex, 100*co)
	var impossible []string
	for _, l := range lines {
		for _, p := range l.WrongPairs {
			t.Errorf("%s: wrong order: %s", l.Table, p)
		}
		for _, p := range l.Impossible {
			impossible = append(impossible, fmt.Sprintf("- %s: %s\n", l.Table, p))
		}
		if l.Kind == "exchange" {
			require.LessOrEqual(t, l.Median, 0.20, l.Table)
		} else if l.LargeRows >= 3 {
			require.LessOrEqual(t, l.LargeMed, 0.10, l.Table)
		}
	}
	text += "\nPairs whose order the planner gets wrong; in each the source has less work taking longer:\n\n" + strings.Join(impossible, "")
	text += "\n" + harder(t)
	t.Log("\n" + text)
	require.LessOrEqual(t, ex, 0.15)
	require.LessOrEqual(t, co, 0.10)

	const begin, end = "<!-- error table: begin -->\n", "<!-- error table: end -->"
	file := filepath.Join("..", "..", "docs", "planner.md")
	doc, err := os.ReadFile(file)
	require.NoError(t, err)
	i, j := strings.Index(string(doc), begin), strings.Index(string(doc), end)
	require.True(t, i >= 0 && j > i, "docs/planner.md has no error table")
	if *update {
		next := string(doc[:i]) + begin + "\n" + text + "\n" + string(doc[j:])
		require.NoError(t, os.WriteFile(file, []byte(next), 0o644))
		return
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("the last digits of a fit depend on fused multiply-add; the document holds amd64's")
	}
	require.Equal(t, "\n"+text+"\n", string(doc[i+len(begin):j]), "docs/planner.md is stale: go test ./plan/published -update")
}
