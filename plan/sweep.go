package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// A Point is one value of a curve.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// A Curve is one layout or implementation over the swept variable.
type Curve struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// A Crossover is where one curve overtakes another.
type Crossover struct {
	Better string  `json:"better_below"` // below X
	Then   string  `json:"better_above"` // above X
	X      float64 `json:"x"`
}

// A Sweep is curves over one variable with their crossovers.
type Sweep struct {
	Over       string      `json:"over"` // ranks, tokens or concurrency
	XName      string      `json:"x"`
	YName      string      `json:"y"`
	LowerWins  bool        `json:"lower_is_better"`
	Curves     []Curve     `json:"curves"`
	Crossovers []Crossover `json:"crossovers"`
	Notes      []string    `json:"notes"`
}

// NewSweep varies one of ranks, tokens or concurrency.
func NewSweep(over string, q Request) (*Sweep, error) {
	if _, err := New(q); err != nil {
		return nil, err
	}
	if q.Cluster.GPUs() < 2 {
		return nil, fmt.Errorf("plan: a sweep compares collectives; want at least 2 GPUs, have %d", q.Cluster.GPUs())
	}
	var s *Sweep
	switch over {
	case "ranks":
		s = sweepRanks(q)
	case "tokens":
		s = sweepTokens(q)
	case "concurrency":
		s = sweepConcurrency(q)
	default:
		return nil, fmt.Errorf("plan: no sweep over %q; have ranks, tokens, concurrency", over)
	}
	s.Crossovers = crossovers(s.Curves, s.LowerWins)
	return s, nil
}

// sweepRanks compares the exchange of one layer from one node to 320 ranks with the tokens per rank fixed: an all-gather and
// reduce-scatter grows with the ranks, an all-to-all stops at top-k.
func sweepRanks(q Request) *Sweep {
	per := max(1, q.Tokens/q.Cluster.GPUs())
	s := &Sweep{Over: "ranks", XName: "ranks", YName: "us per layer (dispatch + combine)", LowerWins: true,
		Notes: []string{fmt.Sprintf("%d tokens per rank at every size", per)}}
	names := []string{"agrs", "all-to-all, flat", "all-to-all, hierarchical", "all-to-all, low latency"}
	points := make([][]Point, len(names))
	c := q.Cluster
	for _, p := range []int{2, 4, 8, 16, 32, 64, 128, 256, 320} {
		if p > c.GPUsPerNode && p%c.GPUsPerNode != 0 {
			continue
		}
		row := float64(q.Model.Hidden) * bf16Sz
		add := func(i int, us float64) { points[i] = append(points[i], Point{float64(p), us}) }
		add(0, 2*GatherTime(c, float64(per*p)*row, p, q.Options.BroadcastLL).Micros)
		for i, scheme := range []Scheme{Flat, Hierarchical, Expanded} {
			e := exchangerFor(c, scheme)
			load := Load{Routing: q.Model.Routing(), Tokens: float64(per), RowBytes: row, Ranks: p, PerNode: c.GPUsPerNode}
			back := load
			back.Combine = true
			if q.Options.WireFP8 {
				load.RowBytes = float64(FP8.Bytes(1, int64(q.Model.Hidden)))
			}
			add(i+1, e.Time(load)+e.Time(back))
		}
	}
	for i, n := range names {
		s.Curves = append(s.Curves, Curve{n, points[i]})
	}
	return s
}

// exchangerFor returns DeepEP's constants under another scheme, at the cluster's link rates.
func exchangerFor(c Cluster, s Scheme) Exchanger {
	name := "deepep-v2"
	if s == Expanded {
		name = "deepep-cx7-ll"
	}
	e, err := ExchangerNamed(name)
	if err != nil {
		panic(err)
	}
	e.Scheme = s
	e.LinkRate *= c.LinkGBs / 450
	if c.NetGBs > 0 {
		e.NetRate *= c.NetGBs / 50
	}
	return e
}

// sweepTokens compares what one layer's collectives cost from one token to 131,072.
func sweepTokens(q Request) *Sweep {
	c, m := q.Cluster, q.Model
	p := c.GPUs()
	s := &Sweep{Over: "tokens", XName: "tokens per forward (all ranks)", YName: "us per layer", LowerWins: true,
		Notes: []string{fmt.Sprintf("%d ranks; two all-reduces a layer for tp, one exchange for dp+ep", p)}}
	var tp, plain, agrs, a2a []Point
	for n := 1; n <= 131072; n *= 2 {
		bytes, x := ActivationBytes(m, n), float64(n)
		tp = append(tp, Point{x, 2 * AllReduceTime(c, bytes, p, true).Micros})
		plain = append(plain, Point{x, 2 * AllReduceTime(c, bytes, p, false).Micros})
		agrs = append(agrs, Point{x, 2 * GatherTime(c, bytes, p, q.Options.BroadcastLL).Micros})
		d := Load{Routing: m.Routing(), Tokens: x / float64(p), RowBytes: float64(m.Hidden) * bf16Sz, Ranks: p, PerNode: c.GPUsPerNode}
		k := d
		k.Combine = true
		a2a = append(a2a, Point{x, ExchangeTime(c, d).Micros + ExchangeTime(c, k).Micros})
	}
	if c.Multicast && c.Nodes == 1 {
		s.Curves = append(s.Curves, Curve{"tp, in-switch reduction", tp})
	}
	s.Curves = append(s.Curves, Curve{"tp, no multicast", plain}, Curve{"dp+ep, agrs", agrs}, Curve{"dp+ep, all-to-all", a2a})
	return s
}

// sweepConcurrency compares requests per second of the layouts over the requests in flight.
func sweepConcurrency(q Request) *Sweep {
	s := &Sweep{Over: "concurrency", XName: "requests in flight", YName: "requests/s",
		Notes: []string{fmt.Sprintf("%s: %d prompt and %d output tokens; at most %d tokens a forward over all ranks", q.Workload.Name,
			q.Workload.Prompt, q.Workload.Output, q.Tokens)}}
	layouts := q.Layouts
	if layouts == nil {
		layouts = StandardLayouts(q.Model, q.Cluster.GPUs())
	}
	for _, l := range layouts {
		c := Curve{Name: l.String()}
		for n := 1; n <= 4096; n *= 2 {
			v := Serve(q.Model, q.Cluster, l, q.Workload, n, max(1, q.Tokens/l.DP), q.Options)
			if v.Refused {
				break
			}
			c.Points = append(c.Points, Point{float64(n), v.Requests})
		}
		if len(c.Points) > 0 {
			s.Curves = append(s.Curves, c)
		} else {
			s.Notes = append(s.Notes, fmt.Sprintf("%s does not fit in memory", l))
		}
	}
	return s
}

// crossovers finds, for every two curves on the same points, where the better one changes, by interpolation on logarithms.
func crossovers(cs []Curve, lowerWins bool) []Crossover {
	var out []Crossover
	for i, a := range cs {
		for _, b := range cs[i+1:] {
			n := min(len(a.Points), len(b.Points))
			for k := 1; k < n; k++ {
				before := math.Log(a.Points[k-1].Y) - math.Log(b.Points[k-1].Y)
				after := math.Log(a.Points[k].Y) - math.Log(b.Points[k].Y)
				if before*after >= 0 || math.Abs(before) < 1e-3 || math.Abs(after) < 1e-3 {
					continue
				}
				lx := math.Log(a.Points[k-1].X)
				x := math.Exp(lx + (math.Log(a.Points[k].X)-lx)*before/(before-after))
				c := Crossover{Better: a.Name, Then: b.Name, X: x}
				if (before > 0) == lowerWins {
					c.Better, c.Then = b.Name, a.Name
				}
				out = append(out, c)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Crossover) int { return cmp.Compare(a.X, b.X) })
	return out
}
