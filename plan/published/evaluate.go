package published

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weftgo/weft/plan"
)

// A Prediction is a row beside what the planner says.
type Prediction struct {
	Table              string
	Row                Row
	Measured, Forecast float64 // microseconds
}

// Error returns the signed relative error of the prediction.
func (p Prediction) Error() float64 { return p.Forecast/p.Measured - 1 }

// Predict returns the planner's time for every row of a table.
func Predict(t Table) []Prediction {
	var out []Prediction
	for _, r := range t.Rows {
		p := Prediction{Table: t.Name, Row: r}
		if t.Kind == "collective" {
			c, err := plan.CollectiveNamed(t.SystemOf(r))
			if err != nil {
				panic(err)
			}
			p.Measured, p.Forecast = t.Micros(r, plan.Flat), c.Time(r.Bytes, r.Ranks)
		} else {
			e, err := plan.ExchangerNamed(t.SystemOf(r))
			if err != nil {
				panic(err)
			}
			p.Measured, p.Forecast = t.Micros(r, e.Scheme), e.Time(t.Load(r))
		}
		out = append(out, p)
	}
	return out
}

// A Line is one table's line of the error table.
type Line struct {
	Table      string
	Kind       string
	Constants  int // fitted
	Fit, Test  int // rows
	Median     float64
	Worst      float64 // of the test rows, absolute
	MedianFit  float64
	LargeRows  int     // test rows of 1 MiB and more (collectives)
	LargeMed   float64 // their median
	Pairs      int     // comparable pairs more than 10 % apart
	WrongPairs []string
	Impossible []string // wrong pairs where the source has less work taking longer
	AllPairs   int
	AllWrong   int
}

// Evaluate returns the error table: one line per published table.
func Evaluate() []Line {
	var out []Line
	for _, t := range Tables() {
		out = append(out, evaluate(t))
	}
	return out
}

func evaluate(t Table) Line {
	l := Line{Table: t.Name, Kind: t.Kind}
	ps := Predict(t)
	var fit, test, large []float64
	systems := map[string]bool{}
	for _, p := range ps {
		if s := t.SystemOf(p.Row); !systems[s] {
			systems[s] = true
			l.Constants += len(free[s])
		}
		e := math.Abs(p.Error())
		if p.Row.Use == "fit" {
			fit = append(fit, e)
			continue
		}
		test = append(test, e)
		if p.Row.Bytes >= 1<<20 {
			large = append(large, e)
		}
	}
	l.Fit, l.Test, l.LargeRows = len(fit), len(test), len(large)
	l.Median, l.MedianFit, l.LargeMed = Median(test), Median(fit), Median(large)
	l.Worst = slices.Max(test)
	l.pairs(ps)
	return l
}

// Median returns the middle of xs, 0 for none.
func Median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(xs))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// pairs compares the order of every two rows of a table. Two rows are comparable when they differ in one thing only: the
// system, the operation with its wire format, the ranks, the tokens, the SMs or the bytes.
func (l *Line) pairs(ps []Prediction) {
	for i, a := range ps {
		for _, b := range ps[i+1:] {
			if math.Abs(math.Log(a.Measured/b.Measured)) <= math.Log(1.1) {
				continue
			}
			right := (a.Measured < b.Measured) == (a.Forecast < b.Forecast) && a.Forecast != b.Forecast
			l.AllPairs++
			if !right {
				l.AllWrong++
			}
			if differ(a.Row, b.Row) != 1 {
				continue
			}
			l.Pairs++
			if right {
				continue
			}
			text := fmt.Sprintf("%s %.1f us against %s %.1f us (predicted %.1f, %.1f)", a.Row, a.Measured, b.Row, b.Measured,
				a.Forecast, b.Forecast)
			if lessTakesLonger(a, b) {
				l.Impossible = append(l.Impossible, text)
			} else {
				l.WrongPairs = append(l.WrongPairs, text)
			}
		}
	}
}

func differ(a, b Row) int {
	n := 0
	for _, d := range []bool{a.System != b.System, a.Op != b.Op || a.Wire != b.Wire, a.Ranks != b.Ranks, a.Tokens != b.Tokens,
		a.SMs != b.SMs, a.Bytes != b.Bytes} {
		if d {
			n++
		}
	}
	return n
}

// lessTakesLonger says whether the pair differs in ranks, tokens or bytes and the smaller one was measured slower.
func lessTakesLonger(a, b Prediction) bool {
	work := func(r Row) float64 { return float64(r.Ranks) * math.Max(1, float64(r.Tokens)) * math.Max(1, r.Bytes) }
	x, y := work(a.Row), work(b.Row)
	return x < y && a.Measured > b.Measured || x > y && a.Measured < b.Measured
}

// String names a row.
func (r Row) String() string {
	var s []string
	for _, part := range []struct {
		ok   bool
		text string
	}{{r.System != "", r.System}, {true, r.Op}, {r.Wire != "", r.Wire}, {true, fmt.Sprintf("%d ranks", r.Ranks)},
		{r.Tokens > 0, fmt.Sprintf("%d tokens", r.Tokens)}, {r.SMs > 0, fmt.Sprintf("%d SMs", r.SMs)},
		{r.Bytes > 0, fmt.Sprintf("%.0f KiB", r.Bytes/1024)}} {
		if part.ok {
			s = append(s, part.text)
		}
	}
	return strings.Join(s, " ")
}

// Markdown returns the error table as docs/planner.md shows it.
func Markdown(lines []Line) string {
	var b strings.Builder
	b.WriteString("| table | rows fit / test | constants | median error fit | median error test | worst test | >= 1 MiB median | " +
		"pairs right | all pairs right |\n|---|---|---|---|---|---|---|---|---|\n")
	pct := func(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
	for _, l := range lines {
		large := ""
		if l.LargeRows > 0 {
			large = pct(l.LargeMed)
		}
		wrong := len(l.WrongPairs) + len(l.Impossible)
		fmt.Fprintf(&b, "| %s | %d / %d | %d | %s | %s | %s | %s | %d of %d | %d of %d |\n", l.Table, l.Fit, l.Test, l.Constants,
			pct(l.MedianFit), pct(l.Median), pct(l.Worst), large, l.Pairs-wrong, l.Pairs, l.AllPairs-l.AllWrong, l.AllPairs)
	}
	return b.String()
}

// Overall returns the median absolute errors over all test rows: of exchanges, and of collectives of 1 MiB and more.
func Overall() (exchange, collective float64) {
	var ex, co []float64
	for _, t := range Tables() {
		for _, p := range Predict(t) {
			switch {
			case p.Row.Use == "fit":
			case t.Kind == "exchange":
				ex = append(ex, math.Abs(p.Error()))
			case p.Row.Bytes >= 1<<20:
				co = append(co, math.Abs(p.Error()))
			}
		}
	}
	return Median(ex), Median(co)
}
