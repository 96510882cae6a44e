package published

import (
	"math"
	"slices"

	"github.com/weftgo/weft/plan"
)

// A sample is one row with its table, ready to be predicted.
type sample struct {
	table Table
	row   Row
}

func samples(system, use string) []sample {
	var out []sample
	for _, t := range Tables() {
		for _, r := range t.Rows {
			if t.SystemOf(r) == system && (use == "" || r.Use == use) {
				out = append(out, sample{t, r})
			}
		}
	}
	return out
}

// misfit is the mean absolute log ratio, so that too long by half and too short by half weigh alike and no single wild
// row decides.
func misfit(ss []sample, predict func(sample) float64, measured func(sample) float64) float64 {
	var sum float64
	for _, s := range ss {
		sum += math.Abs(math.Log(predict(s) / measured(s)))
	}
	return sum / float64(len(ss))
}

// FitExchanger returns e with the constants that predict its fit rows best; names lists which constants may move. Rates
// stay below the line rates of the tables.
func FitExchanger(e plan.Exchanger, names []string) (plan.Exchanger, float64) {
	return fitExchanger(e, names, samples(e.Name, "fit"))
}

func fitExchanger(e plan.Exchanger, names []string, ss []sample) (plan.Exchanger, float64) {
	set := func(e plan.Exchanger, x []float64) plan.Exchanger {
		for i, n := range names {
			*exchangerField(&e, n) = x[i]
			if n == "Alpha" {
				e.Combine = e.Dispatch
			}
		}
		return e
	}
	cost := func(x []float64) float64 {
		c := set(e, x)
		over := math.Max(0, c.LinkRate/ss[0].table.LinkGBs-1) + math.Max(0, c.NetRate/ss[0].table.NetGBs-1)
		return 100*over + misfit(ss, func(s sample) float64 { return c.Time(s.table.Load(s.row)) },
			func(s sample) float64 { return s.table.Micros(s.row, c.Scheme) })
	}
	start := make([]float64, len(names))
	for i, n := range names {
		start[i] = *exchangerField(&e, n)
	}
	x, v := minimise(cost, start)
	return set(e, x), v
}

// FitCollective is FitExchanger for a collective.
func FitCollective(c plan.Collective, names []string) (plan.Collective, float64) {
	return fitCollective(c, names, samples(c.Name, "fit"))
}

func fitCollective(c plan.Collective, names []string, ss []sample) (plan.Collective, float64) {
	set := func(c plan.Collective, x []float64) plan.Collective {
		for i, n := range names {
			*collectiveField(&c, n) = x[i]
		}
		return c
	}
	cost := func(x []float64) float64 {
		c := set(c, x)
		return 100*math.Max(0, c.Rate/ss[0].table.LinkGBs-1) + misfit(ss,
			func(s sample) float64 { return c.Time(s.row.Bytes, s.row.Ranks) },
			func(s sample) float64 { return s.table.Micros(s.row, plan.Flat) })
	}
	start := make([]float64, len(names))
	for i, n := range names {
		start[i] = *collectiveField(&c, n)
	}
	x, v := minimise(cost, start)
	return set(c, x), v
}

func exchangerField(e *plan.Exchanger, name string) *float64 {
	switch name {
	case "Dispatch", "Alpha":
		return &e.Dispatch
	case "Combine":
		return &e.Combine
	case "Network":
		return &e.Network
	case "SMRate":
		return &e.SMRate
	case "Peer":
		return &e.Peer
	case "LinkRate":
		return &e.LinkRate
	case "NetRate":
		return &e.NetRate
	case "RowRate":
		return &e.RowRate
	case "Copy":
		return &e.Copy
	}
	panic("published: no constant " + name)
}

func collectiveField(c *plan.Collective, name string) *float64 {
	switch name {
	case "Alpha":
		return &c.Alpha
	case "Rate":
		return &c.Rate
	case "LowRate":
		return &c.LowRate
	case "Pipe":
		return &c.Pipe
	case "Floor":
		return &c.Floor
	}
	panic("published: no constant " + name)
}

// minimise is a Nelder-Mead search over the logarithms of positive numbers, restarted from its own best point until that
// no longer helps. It is deterministic.
func minimise(cost func([]float64) float64, start []float64) ([]float64, float64) {
	at := func(l []float64) float64 {
		x := make([]float64, len(l))
		for i := range l {
			x[i] = math.Exp(l[i])
		}
		return cost(x)
	}
	best := make([]float64, len(start))
	for i, s := range start {
		best[i] = math.Log(math.Max(s, 1e-3))
	}
	value := at(best)
	for round := range 40 {
		step := []float64{0.5, -0.7, 1.5, -0.2, 0.1}[round%5]
		p, v := simplex(at, best, step)
		if v < value {
			best, value = p, v
		}
	}
	out := make([]float64, len(best))
	for i := range best {
		out[i] = math.Exp(best[i])
	}
	return out, value
}

type vertex struct {
	p []float64
	v float64
}

func simplex(f func([]float64) float64, start []float64, step float64) ([]float64, float64) {
	n := len(start)
	vs := []vertex{{slices.Clone(start), f(start)}}
	for i := range n {
		p := slices.Clone(start)
		p[i] += step
		vs = append(vs, vertex{p, f(p)})
	}
	for range 200 * n {
		slices.SortStableFunc(vs, func(a, b vertex) int {
			if a.v < b.v {
				return -1
			}
			if a.v > b.v {
				return 1
			}
			return 0
		})
		if vs[n].v-vs[0].v < 1e-9 {
			break
		}
		stepSimplex(f, vs)
	}
	i := 0
	for j := range vs {
		if vs[j].v < vs[i].v {
			i = j
		}
	}
	return vs[i].p, vs[i].v
}

// stepSimplex reflects the worst vertex through the middle of the others, and expands, contracts or shrinks.
func stepSimplex(f func([]float64) float64, vs []vertex) {
	n := len(vs) - 1
	mid := make([]float64, n)
	for _, v := range vs[:n] {
		for i := range mid {
			mid[i] += v.p[i] / float64(n)
		}
	}
	move := func(by float64) vertex {
		p := make([]float64, n)
		for i := range p {
			p[i] = mid[i] + by*(mid[i]-vs[n].p[i])
		}
		return vertex{p, f(p)}
	}
	r := move(1)
	switch {
	case r.v < vs[0].v:
		if e := move(2); e.v < r.v {
			r = e
		}
		vs[n] = r
	case r.v < vs[n-1].v:
		vs[n] = r
	default:
		if c := move(-0.5); c.v < vs[n].v {
			vs[n] = c
			return
		}
		for j := 1; j <= n; j++ {
			for i := range vs[j].p {
				vs[j].p[i] = (vs[j].p[i] + vs[0].p[i]) / 2
			}
			vs[j].v = f(vs[j].p)
		}
	}
}
