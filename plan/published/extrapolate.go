package published

import (
	"cmp"
	"math"
	"slices"

	"github.com/weftgo/weft/plan"
)

// Extrapolate is a harder question than Evaluate asks: every system with at least six rows is fitted on the smaller half of
// its rows (by ranks, then bytes or tokens) and predicts the larger half. The search starts from
// line rates and round latencies, so that nothing of the larger half leaks in. It returns the median absolute errors of the
// predicted rows, over all exchanges and over all collectives.
func Extrapolate() (exchange, collective float64) {
	var ex, co []float64
	for _, e := range plan.Exchangers {
		small, large := halves(samples(e.Name, ""))
		if len(large) == 0 {
			continue
		}
		line := small[0].table
		for name, x := range map[string]float64{"Dispatch": 20, "Combine": 20, "Peer": 0.2, "Network": 10, "LinkRate": 0.8 * line.LinkGBs,
			"NetRate": 0.97 * line.NetGBs, "RowRate": 2, "SMRate": 50, "Copy": 20} {
			if slices.Contains(free[e.Name], name) || name == "Dispatch" || name == "Combine" {
				*exchangerField(&e, name) = x
			}
		}
		f, _ := fitExchanger(e, free[e.Name], small)
		for _, s := range large {
			ex = append(ex, math.Abs(f.Time(s.table.Load(s.row))/s.table.Micros(s.row, f.Scheme)-1))
		}
	}
	for _, c := range plan.Collectives {
		small, large := halves(samples(c.Name, ""))
		if len(large) == 0 {
			continue
		}
		for name, x := range map[string]float64{"Alpha": 10, "Rate": 0.7 * small[0].table.LinkGBs, "LowRate": 0.3 * small[0].table.LinkGBs,
			"Pipe": 5, "Floor": 5} {
			if slices.Contains(free[c.Name], name) {
				*collectiveField(&c, name) = x
			}
		}
		f, _ := fitCollective(c, free[c.Name], small)
		for _, s := range large {
			co = append(co, math.Abs(f.Time(s.row.Bytes, s.row.Ranks)/s.table.Micros(s.row, plan.Flat)-1))
		}
	}
	return Median(ex), Median(co)
}

func halves(ss []sample) (small, large []sample) {
	if len(ss) < 6 {
		return nil, nil
	}
	slices.SortStableFunc(ss, func(a, b sample) int {
		return cmp.Or(cmp.Compare(a.row.Ranks, b.row.Ranks), cmp.Compare(a.row.Bytes, b.row.Bytes), cmp.Compare(a.row.Tokens, b.row.Tokens))
	})
	return ss[:len(ss)/2], ss[len(ss)/2:]
}

// A Transfer predicts all rows of one system with the constants of another, nothing fitted.
type Transfer struct {
	From, To string
	Median   float64
}

// family are the low-latency exchanges over ConnectX-7 networks, which send the same bytes.
var family = []string{"deepep-cx7-ll", "pplx-cx7", "nccl-ep-ll", "deepep-v1-ll"}

// Transfers predicts each system of the family with each other's constants.
func Transfers() []Transfer {
	var out []Transfer
	for _, from := range family {
		e, err := plan.ExchangerNamed(from)
		if err != nil {
			panic(err)
		}
		for _, to := range family {
			if to == from {
				continue
			}
			var errs []float64
			for _, s := range samples(to, "") {
				errs = append(errs, math.Abs(e.Time(s.table.Load(s.row))/s.table.Micros(s.row, e.Scheme)-1))
			}
			out = append(out, Transfer{from, to, Median(errs)})
		}
	}
	return out
}
