package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weftgo/weft/benchmarks/record"
)

// chart is one operation under one set of conditions, in all runs that have it.
type chart struct {
	title  string // the operation
	detail string // type, reduction, ranks, load
	file   string // stem of the plots' names
	byTok  bool   // x is tokens of each rank, not bytes
	series []series

	numColors int
}

// series is one line: a run, a driver, a form.
type series struct {
	name   string
	color  int  // the same for both forms of a run and driver
	dashed bool // in place
	points []point
}

// point is the median over cycles, or rounds, of one size.
type point struct {
	x             int64
	timeUs, busBW float64
	p99Us         float64 // 0 when unknown
	wrong         int64
}

// at returns the point of a size.
func (s series) at(x int64) (point, bool) {
	i := slices.IndexFunc(s.points, func(p point) bool { return p.x == x })
	if i < 0 {
		return point{}, false
	}
	return s.points[i], true
}

// xs lists all sizes of a chart, in order.
func (c chart) xs() []int64 {
	var xs []int64
	for _, s := range c.series {
		for _, p := range s.points {
			xs = append(xs, p.x)
		}
	}
	slices.Sort(xs)
	return slices.Compact(xs)
}

// arrange sorts the rows of all runs into charts, in order of first appearance.
func arrange(runs []record.Run) []chart {
	var charts []chart
	index := map[string]int{}
	colors := map[string]int{} // of a run and driver in a chart
	for r, run := range runs {
		for _, group := range groupRows(run) {
			first := group[0]
			title, detail := headings(first)
			key := title + " " + detail
			i, ok := index[key]
			if !ok {
				i = len(charts)
				index[key] = i
				charts = append(charts, chart{title: title, detail: detail, byTok: first.MoE != nil || first.Tokens > 0, file: fileName(key)})
			}
			color := fmt.Sprint(key, r, first.Driver, first.How)
			if first.MoE != nil {
				color += fmt.Sprint(first.MoE.Backend, first.MoE.LowLatency)
			}
			if _, ok := colors[color]; !ok {
				colors[color] = charts[i].numColors
				charts[i].numColors++
			}
			charts[i].series = append(charts[i].series, series{name: seriesName(runs, run, first), color: colors[color],
				dashed: first.InPlace && first.Op != "broadcast", points: points(group)})
		}
	}
	return charts
}

// groupRows splits the rows of a run into what becomes one series each; weft's come before those of peers, whatever ran first.
func groupRows(run record.Run) [][]record.Row {
	var order []string
	groups := map[string][]record.Row{}
	for _, row := range run.Rows {
		if row.Op == "copy" {
			continue
		}
		title, detail := headings(row)
		key := fmt.Sprint(title, detail, row.Driver, row.InPlace, row.How)
		if row.MoE != nil {
			key += fmt.Sprint(row.MoE.Backend, row.MoE.LowLatency)
		}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], row)
	}
	out := make([][]record.Row, 0, len(order))
	for _, key := range order {
		out = append(out, groups[key])
	}
	slices.SortStableFunc(out, func(a, b []record.Row) int { return cmp.Compare(rank(a[0].Driver), rank(b[0].Driver)) })
	return out
}

// rank orders drivers: weft's own, Open MPI, MPICH.
func rank(driver string) int { return slices.Index([]string{"openmpi", "mpich"}, driver) }

// headings names the chart that a row belongs to.
func headings(r record.Row) (title, detail string) {
	var parts []string
	if r.Op != "barrier" && r.Type != "" {
		parts = append(parts, r.Type)
	}
	if m := r.MoE; m != nil {
		if m.Wire != r.Type {
			parts[0] += " (wire " + m.Wire + ")"
		}
		parts = append(parts, fmt.Sprintf("hidden %d", m.Hidden), fmt.Sprintf("top %d of %d experts", m.TopK, m.Experts))
		if m.Zipf > 0 {
			parts = append(parts, fmt.Sprintf("zipf %.3g", m.Zipf))
		}
	} else if r.Redop != "" {
		parts = append(parts, r.Redop)
	}
	if r.Root != nil && *r.Root > 0 {
		parts = append(parts, fmt.Sprintf("root %d", *r.Root))
	}
	parts = append(parts, fmt.Sprintf("%d ranks", r.Ranks))
	if r.Skew > 0 {
		parts = append(parts, fmt.Sprintf("skew %.3g", r.Skew))
	}
	if r.Zeros {
		parts = append(parts, "odd ranks empty")
	}
	return r.Op, strings.Join(parts, " · ")
}

// seriesName names a line as briefly as the runs allow.
func seriesName(runs []record.Run, run record.Run, r record.Row) string {
	var parts []string
	if len(runs) > 1 {
		parts = append(parts, strings.TrimSuffix(run.Name, ".jsonl"))
	}
	switch {
	case r.MoE != nil && r.MoE.LowLatency:
		parts = append(parts, r.MoE.Backend+", low latency")
	case r.MoE != nil:
		parts = append(parts, r.MoE.Backend)
	case r.How != "":
		parts = append(parts, r.How)
	case run.Header.Tool == "peers":
		parts = append(parts, map[string]string{"local": "weft", "openmpi": "Open MPI", "mpich": "MPICH"}[r.Driver])
	case r.InPlace && r.Op != "broadcast":
		parts = append(parts, "in place")
	case r.Op != "broadcast" && r.Op != "barrier":
		parts = append(parts, "out of place")
	}
	if len(parts) == 0 {
		parts = append(parts, r.Driver)
	}
	return strings.Join(parts, ", ")
}

// points takes the median over cycles of each size.
func points(rows []record.Row) []point {
	bySize := map[int64][]record.Row{}
	for _, r := range rows {
		x := r.Size
		if x == 0 {
			x = int64(r.Tokens)
		}
		if r.MoE != nil {
			x = int64(r.MoE.Tokens)
		}
		bySize[x] = append(bySize[x], r)
	}
	var out []point
	for x, rows := range bySize {
		p := point{x: x}
		var times, bws, p99s []float64
		for _, r := range rows {
			times, bws = append(times, r.TimeUs), append(bws, r.BusBW)
			if r.MoE != nil {
				p99s = append(p99s, r.MoE.P99Us)
			}
			if r.Wrong != nil {
				p.wrong += *r.Wrong
			}
		}
		p.timeUs, p.busBW, p.p99Us = median(times), median(bws), median(p99s)
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b point) int { return cmp.Compare(a.x, b.x) })
	return out
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(x))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// fileName turns headings into a file's name.
func fileName(key string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_', r == '.':
			return r
		}
		return '-'
	}, strings.NewReplacer(" · ", "-", "(", "", ")", "").Replace(key)), "-")
}
