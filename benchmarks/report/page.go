package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/weftgo/weft/benchmarks/record"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the template shows.
type page struct {
	Title    string
	Runs     []runView
	Heads    []string // of the summary: the series that are compared with the first
	Base     string
	Summary  []summaryRow
	Sections []section
}

type runView struct {
	Name, Tool, Weft, Date, Machine, Args, Note string
	Peers                                       string
	Wrong                                       int64
}

type summaryRow struct {
	ID, Title, Detail string
	Cells             []cellView
}

type section struct {
	ID, Title, Detail string
	Plots             []template.HTML
	XName, BWName     string
	Heads             []string
	Rows              []tableRow
}

type tableRow struct {
	X     string
	Cells []cellView
}

// cellView is one time, its bandwidth, and how it compares with the first series.
type cellView struct{ Time, BW, Ratio, Class string }

// writePage writes the HTML page.
func writePage(out io.Writer, title string, runs []record.Run, charts []chart) error {
	p := page{Title: title}
	for _, r := range runs {
		p.Runs = append(p.Runs, viewRun(r))
	}
	for i, c := range charts {
		s := section{ID: fmt.Sprintf("c%d", i), Title: c.title, Detail: c.detail, XName: "size", BWName: "busbw"}
		if c.byTok {
			s.XName, s.BWName = "tokens", "wire"
		}
		for n, v := range c.views() {
			svg, err := c.svg(v)
			if err != nil {
				return fmt.Errorf("%s: %w", c.title, err)
			}
			s.Plots = append(s.Plots, inline(svg, fmt.Sprintf("c%dp%d", i, n)))
		}
		s.table(c)
		p.Sections = append(p.Sections, s)
		p.summarize(s, c)
	}
	return pageTemplate.Execute(out, p)
}

func viewRun(r record.Run) runView {
	v := runView{Name: r.Name, Tool: r.Header.Tool, Weft: weft(r.Header.Weft), Date: r.Header.Time.Format("2006-01-02 15:04 UTC"),
		Machine: machine(r.Header), Args: strings.Join(r.Header.Args, " "), Note: r.Header.Note}
	var peers []string
	for _, name := range []string{"openmpi", "mpich"} {
		if version := r.Header.Peers[name]; version != "" {
			peers = append(peers, version)
		}
	}
	v.Peers = strings.Join(peers, "; ")
	for _, row := range r.Rows {
		if row.Wrong != nil {
			v.Wrong += *row.Wrong
		}
	}
	return v
}

// weft marks a version that nobody can build again.
func weft(version string) string {
	if record.Dirty(version) {
		return version + " (with changes that no commit has)"
	}
	return version
}

// machine is a line about where a run happened.
func machine(h record.Header) string {
	if h.GPU != "" && h.Machine.CPU == "" {
		return h.GPU
	}
	return h.Machine.String()
}

// table fills in the numbers under the plots: a line for each size, a column for each series.
func (s *section) table(c chart) {
	for _, line := range c.series {
		s.Heads = append(s.Heads, line.name)
	}
	for _, x := range c.xs() {
		row := tableRow{X: fmt.Sprint(x)}
		base, hasBase := c.series[0].at(x)
		for i, line := range c.series {
			pt, ok := line.at(x)
			if !ok {
				row.Cells = append(row.Cells, cellView{Time: "–"})
				continue
			}
			cell := cellView{Time: duration(pt.timeUs)}
			if x > 0 && pt.busBW > 0 {
				cell.BW = fmt.Sprintf("%.2f GB/s", pt.busBW)
			}
			if i > 0 && hasBase && pt.timeUs > 0 {
				cell.Ratio, cell.Class = compare(base.timeUs / pt.timeUs)
			}
			if pt.wrong > 0 {
				cell.Ratio, cell.Class = fmt.Sprintf("%d wrong", pt.wrong), "wrong"
			}
			row.Cells = append(row.Cells, cell)
		}
		s.Rows = append(s.Rows, row)
	}
}

// summarize adds the geometric mean over sizes of each series' speed, compared with the first.
func (p *page) summarize(s section, c chart) {
	if len(c.series) < 2 {
		return
	}
	row := summaryRow{ID: s.ID, Title: c.title, Detail: c.detail}
	for _, line := range c.series[1:] {
		sum, n := 0.0, 0
		for _, pt := range line.points {
			if base, ok := c.series[0].at(pt.x); ok && pt.timeUs > 0 && base.timeUs > 0 {
				sum, n = sum+math.Log(base.timeUs/pt.timeUs), n+1
			}
		}
		cell := cellView{Time: line.name}
		if n > 0 {
			cell.Ratio, cell.Class = compare(math.Exp(sum / float64(n)))
		}
		row.Cells = append(row.Cells, cell)
	}
	p.Summary = append(p.Summary, row)
}

// compare prints a speed in relation to the first series, and its class: what is within 5 % counts as the same.
func compare(speed float64) (text, class string) {
	class = "same"
	switch {
	case speed > 1.05:
		class = "faster"
	case speed < 0.95:
		class = "slower"
	}
	if speed < 0.1 {
		return fmt.Sprintf("%.1g×", speed), class
	}
	return fmt.Sprintf("%.2f×", speed), class
}

// inline makes an SVG document a part of the page: without its XML head, scaling to the column, and with ids of its own, since
// those of a page must differ.
func inline(svg []byte, id string) template.HTML {
	if i := bytes.Index(svg, []byte("<svg")); i > 0 {
		svg = svg[i:]
	}
	text := string(svg)
	if end := strings.Index(text, ">"); end > 0 {
		head := text[:end]
		var kept []string
		for _, part := range strings.Fields(head) {
			if !strings.HasPrefix(part, "width=") && !strings.HasPrefix(part, "height=") {
				kept = append(kept, part)
			}
		}
		text = strings.Join(kept, " ") + ` class="plot"` + text[end:]
	}
	text = strings.NewReplacer(`id="`, `id="`+id, `url(#`, `url(#`+id).Replace(text)
	return template.HTML(text)
}
