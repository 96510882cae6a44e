package plan

import (
	"fmt"
	"math"
)

// A Shape is a collective's algorithm: how many bytes a rank sends per byte of payload.
type Shape uint8

// The shapes.
const (
	Ring      Shape = iota // all-reduce: 2(P-1)/P of S
	OneShot                // every rank reads all inputs: (P-1) of S
	TwoShot                // reduce-scatter and all-gather by direct access: 2(P-1)/P of S
	InSwitch               // the switch reduces: (1+1/P) of S
	HalfRing               // all-gather or reduce-scatter: (P-1)/P of S
	SwitchOne              // every rank load-reduces all of S through the switch: S
)

// Wire returns the bytes a rank sends per byte of payload on p ranks.
func (s Shape) Wire(p int) float64 {
	f := float64(p)
	switch s {
	case OneShot:
		return f - 1
	case InSwitch:
		return 1 + 1/f
	case HalfRing:
		return (f - 1) / f
	case SwitchOne:
		return 1
	}
	return 2 * (f - 1) / f
}

// A Collective is the alpha-beta model of one implementation of an all-reduce, all-gather or reduce-scatter:
//
//	t = max(Floor, Alpha + min(wire*S/LowRate, Pipe*sqrt(S) + wire*S/Rate))   microseconds
//
// Pipe is the cost of filling and draining a pipeline whose chunk grows with the square root of the message. LowRate is a
// second protocol that trades bandwidth for latency; without one the second term of the minimum counts alone.
type Collective struct {
	Name    string  `json:"name"`
	Shape   Shape   `json:"shape"`
	Alpha   float64 `json:"alpha_us"`
	Rate    float64 `json:"rate_gbs"`     // achieved, one way
	LowRate float64 `json:"low_rate_gbs"` // of the low-latency protocol; 0: none
	Pipe    float64 `json:"pipe_us_per_sqrt_mib"`
	Floor   float64 `json:"floor_us"`
	Source  string  `json:"source"`
	Fitted  int     `json:"fitted_rows"` // rows of plan/published the constants were fitted on; 0: taken over, not fitted
}

// Time returns the predicted microseconds for a payload of bytes on p ranks. One rank, or no bytes, takes no time.
func (c Collective) Time(bytes float64, p int) float64 {
	if p <= 1 || bytes <= 0 {
		return 0
	}
	wire := c.Shape.Wire(p) * bytes / 1e3
	t := c.Pipe*math.Sqrt(bytes/perMiB) + wire/c.Rate
	if c.LowRate > 0 {
		t = math.Min(t, wire/c.LowRate)
	}
	return math.Max(c.Floor, c.Alpha+t)
}

// An Exchanger is the alpha-beta model of one dispatch/combine library:
//
//	t = Alpha + Network + Peer*P + norm4(NVLink bytes/LinkRate, network bytes/NetRate, SM work/SMs)   microseconds
//
// Network counts only when there is more than one node. The three streams run at once; norm4 is (x^4+y^4+z^4)^(1/4), a
// maximum that is rounded where two streams nearly tie (a plain sum when Serial). SM work is row/SMRate for each row,
// and 1/RowRate more when it is dispatched: its destinations must be looked up.
type Exchanger struct {
	Name     string  `json:"name"`
	Scheme   Scheme  `json:"scheme"`
	Dispatch float64 `json:"alpha_dispatch_us"`
	Combine  float64 `json:"alpha_combine_us"`
	Network  float64 `json:"alpha_network_us"`
	Peer     float64 `json:"peer_us"` // per rank of the group
	LinkRate float64 `json:"link_gbs"`
	NetRate  float64 `json:"net_gbs"`
	RowRate  float64 `json:"sm_rows_per_us"`  // rows one SM handles per microsecond; 0: never the limit
	SMRate   float64 `json:"sm_gbs"`          // bytes one SM moves; 0: never the limit
	Serial   bool    `json:"serial"`          // the streams follow each other: store and forward
	Copy     float64 `json:"copy_ns_per_row"` // a copy of received rows after a dispatch, before the call returns
	Source   string  `json:"source"`
	Fitted   int     `json:"fitted_rows"`
}

// A Load is one dispatch or combine.
type Load struct {
	Routing  Routing
	Tokens   float64 // per rank
	RowBytes float64
	Ranks    int
	PerNode  int
	SMs      int
	Combine  bool
}

// Time returns the predicted microseconds.
func (e Exchanger) Time(l Load) float64 {
	if l.Ranks <= 1 {
		return 0
	}
	c := l.Routing.Copies(e.Scheme, l.Ranks, l.PerNode)
	mb := l.Tokens * l.RowBytes / 1e3 // bytes of one copy of all rows, in the unit that GB/s turns into microseconds
	power := 4.0
	if e.Serial {
		power = 1
	}
	streams := math.Pow(c.NVLink*mb/e.LinkRate, power)
	if c.Network > 0 {
		streams += math.Pow(c.Network*mb/e.NetRate, power)
	}
	if e.RowRate > 0 && e.SMRate > 0 && l.SMs > 0 {
		work := mb / e.SMRate
		if !l.Combine {
			work += l.Tokens / e.RowRate
		}
		streams += math.Pow(c.Logical*work/float64(l.SMs), power)
	}
	t := math.Pow(streams, 1/power) + e.Peer*float64(l.Ranks)
	if c.Network > 0 {
		t += e.Network
	}
	if l.Combine {
		return t + e.Combine
	}
	return t + e.Dispatch + e.Copy*c.Logical*l.Tokens/1e3
}

// ExchangerNamed returns the constants of a dispatch/combine library.
func ExchangerNamed(name string) (Exchanger, error) {
	for _, e := range Exchangers {
		if e.Name == name {
			return e, nil
		}
	}
	return Exchanger{}, fmt.Errorf("plan: no exchanger %q in the table of constants", name)
}

// CollectiveNamed returns the constants of a collective.
func CollectiveNamed(name string) (Collective, error) {
	for _, c := range Collectives {
		if c.Name == name {
			return c, nil
		}
	}
	return Collective{}, fmt.Errorf("plan: no collective %q in the table of constants", name)
}
