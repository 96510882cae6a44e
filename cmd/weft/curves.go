package main

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"

	"github.com/weftgo/weft/plan"
)

// printSweep prints the curves as a table and as a chart of characters, and the crossovers.
func printSweep(w io.Writer, s *plan.Sweep) error {
	p := &printer{w: w}
	p.f("%s over %s\n", s.YName, s.XName)
	for _, n := range s.Notes {
		p.f("  %s\n", n)
	}
	header := []string{s.XName}
	longest := s.Curves[0]
	for i, c := range s.Curves {
		header = append(header, fmt.Sprintf("%c: %s", mark(i), c.Name))
		if len(c.Points) > len(longest.Points) {
			longest = c
		}
	}
	rows := [][]string{header}
	for i, at := range longest.Points {
		row := []string{fmt.Sprintf("%.0f", at.X)}
		for _, c := range s.Curves {
			if i < len(c.Points) {
				row = append(row, fmt.Sprintf("%.4g", c.Points[i].Y))
			} else {
				row = append(row, "-")
			}
		}
		rows = append(rows, row)
	}
	p.table(rows)
	p.f("\n%s\n", chart(s, 72, 18))
	if len(s.Crossovers) == 0 {
		p.f("no crossovers\n")
	}
	for _, x := range s.Crossovers {
		p.f("crossover at %s %.0f: %s is better below, %s above\n", s.XName, x.X, x.Better, x.Then)
	}
	return p.err
}

func mark(i int) rune { return rune('a' + i%26) }

// bounds returns the ranges of both axes, in logarithms.
func bounds(s *plan.Sweep) (x0, x1, y0, y1 float64) {
	x0, y0, x1, y1 = math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)
	for _, c := range s.Curves {
		for _, p := range c.Points {
			x0, x1 = math.Min(x0, math.Log(p.X)), math.Max(x1, math.Log(p.X))
			y0, y1 = math.Min(y0, math.Log(p.Y)), math.Max(y1, math.Log(p.Y))
		}
	}
	return x0, math.Max(x1, x0+1e-9), y0, math.Max(y1, y0+1e-9)
}

// chart draws the curves with letters on logarithmic axes; where curves meet the first one shows.
func chart(s *plan.Sweep, width, height int) string {
	x0, x1, y0, y1 := bounds(s)
	grid := make([][]rune, height)
	for i := range grid {
		grid[i] = []rune(strings.Repeat(" ", width))
	}
	for i := len(s.Curves) - 1; i >= 0; i-- {
		for _, p := range s.Curves[i].Points {
			x := int(math.Round((math.Log(p.X) - x0) / (x1 - x0) * float64(width-1)))
			y := int(math.Round((math.Log(p.Y) - y0) / (y1 - y0) * float64(height-1)))
			grid[height-1-y][x] = mark(i)
		}
	}
	var b strings.Builder
	for i, row := range grid {
		label := ""
		switch i {
		case 0:
			label = fmt.Sprintf("%.4g", math.Exp(y1))
		case height - 1:
			label = fmt.Sprintf("%.4g", math.Exp(y0))
		}
		fmt.Fprintf(&b, "%9s |%s\n", label, strings.TrimRight(string(row), " "))
	}
	fmt.Fprintf(&b, "%9s +%s\n%11s%-*.0f%*.0f  %s\n", "", strings.Repeat("-", width), "", width/2, math.Exp(x0), width-width/2, math.Exp(x1), s.XName)
	return b.String()
}

var colours = []string{"#1b6ca8", "#c0392b", "#1e8449", "#8e44ad", "#d68910", "#117a65", "#6c3483", "#2c3e50", "#7b241c"}

// drawSVG draws the curves on logarithmic axes with ticks, a legend, and the crossovers as dots.
func drawSVG(s *plan.Sweep) string {
	const w, h, left, top, right, bottom = 900, 520, 80, 30, 250, 60
	x0, x1, y0, y1 := bounds(s)
	px := func(x float64) float64 { return left + (math.Log(x)-x0)/(x1-x0)*(w-left-right) }
	py := func(y float64) float64 { return h - bottom - (math.Log(y)-y0)/(y1-y0)*(h-top-bottom) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", w, h)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", w, h)
	for e := math.Ceil(x0 / math.Ln2); e*math.Ln2 <= x1+1e-9; e++ {
		x := px(math.Exp2(e))
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%.0f</text>`+"\n",
			x, top, x, h-bottom, x, h-bottom+18, math.Exp2(e))
	}
	for e := math.Floor(y0 / math.Ln10); e*math.Ln10 <= y1; e++ {
		for _, k := range []float64{1, 2, 5} {
			if v := k * math.Pow(10, e); math.Log(v) >= y0 && math.Log(v) <= y1 {
				fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.4g</text>`+"\n",
					left, py(v), w-right, py(v), left-6, py(v)+4, v)
			}
		}
	}
	for i, c := range s.Curves {
		colour := colours[i%len(colours)]
		var at []string
		for _, p := range c.Points {
			at = append(at, fmt.Sprintf("%.1f,%.1f", px(p.X), py(p.Y)))
		}
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>`+"\n", colour, strings.Join(at, " "))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="14" height="4" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n", w-right+16, top+10+20*i, colour,
			w-right+36, top+16+20*i, html.EscapeString(c.Name))
	}
	for _, x := range s.Crossovers {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#555" stroke-dasharray="3 3"><title>%s</title></line>`+"\n", px(x.X),
			top, px(x.X), h-bottom, html.EscapeString(fmt.Sprintf("%.0f: %s, then %s", x.X, x.Better, x.Then)))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text><text x="%d" y="18">%s</text>`+"\n</svg>\n", (left+w-right)/2, h-16,
		html.EscapeString(s.XName), left, html.EscapeString(s.YName))
	return b.String()
}
