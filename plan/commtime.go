package plan

import (
	"math"
	"strings"
)

// A Chosen is one operation with the implementation that the planner takes for it, and its time.
type Chosen struct {
	Op     string  `json:"op"`
	By     string  `json:"by"` // name in the table of constants
	Micros float64 `json:"us"`
}

// AllReduceTime returns the fastest all-reduce of bytes on p ranks of the cluster: one- and two-shot by direct access and
// NCCL's ring, and with multicast what reduces in the switch. Between nodes only NCCL is known.
func AllReduceTime(c Cluster, bytes float64, p int, multicast bool) Chosen {
	best := Chosen{Op: "all_reduce", Micros: math.Inf(1)}
	if p <= 1 || bytes <= 0 {
		return Chosen{Op: "all_reduce"}
	}
	candidates := []string{"nccl-ring"}
	if p <= c.GPUsPerNode {
		candidates = append(candidates, "vllm-one-shot", "symm-two-shot-8")
		if multicast && c.Multicast {
			candidates = append(candidates, "symm-multimem-8", "nccl-graph")
		}
	}
	for _, name := range candidates {
		k, err := CollectiveNamed(name)
		if err != nil {
			panic(err)
		}
		t := scaled(k, c).Time(bytes, p)
		if p > c.GPUsPerNode {
			t += 2 * hops(c, p)
		}
		if t < best.Micros {
			best.By, best.Micros = name, t
		}
	}
	return best
}

// NCCL's latencies of a ring step with its low-latency protocol (nccl src/graph/tuning.cc): inside a node, between nodes.
const (
	hopLinkUS = 0.6
	hopNetUS  = 2.7
)

// hops returns the microseconds that a ring's steps take beyond those of one node.
func hops(c Cluster, p int) float64 {
	nodes := float64(p) / float64(c.GPUsPerNode)
	return hopLinkUS*(float64(p-c.GPUsPerNode)-nodes) + hopNetUS*nodes
}

// scaled moves a Hopper implementation's rates to another link rate.
func scaled(k Collective, c Cluster) Collective {
	const hopper = 450
	k.Rate *= c.LinkGBs / hopper
	k.LowRate *= c.LinkGBs / hopper
	return k
}

// GatherTime returns an all_gatherv or a reduce_scatterv of bytes in all on p ranks.
func GatherTime(c Cluster, bytes float64, p int, broadcastLL bool) Chosen {
	k, err := CollectiveNamed("nccl-half")
	if err != nil {
		panic(err)
	}
	k = scaled(k, c)
	by := k.Name
	if broadcastLL {
		k.Rate, by = math.Min(k.Rate, llRate), "nccl-half at the LL ceiling"
	}
	if p > c.GPUsPerNode { // each rank receives all but its node's rows over its own NIC
		share := float64(p-c.GPUsPerNode) / float64(p)
		net := share * bytes / float64(c.GPUsPerNode) / (0.97 * c.NetGBs) / 1e3
		return Chosen{"gather", by + " + network", math.Max(net, k.Time(bytes, p)) + hops(c, p)}
	}
	return Chosen{"gather", by, k.Time(bytes, p)}
}

// ExchangeTime returns the fastest known dispatch or combine on the cluster.
func ExchangeTime(c Cluster, l Load) Chosen {
	candidates := []string{"deepep-cx7-ll", "pplx-cx7", "deepep-v2"}
	switch {
	case strings.Contains(c.Name, "mi300x"):
		candidates = []string{"uccl-ll-mi300x", "uccl-mi300x"}
	case c.GPUsPerNode > 8:
		candidates = []string{"trtllm-onesided"}
	}
	op := "dispatch"
	if l.Combine {
		op = "combine"
	}
	best := Chosen{Op: op, Micros: math.Inf(1)}
	for _, name := range candidates {
		e, err := ExchangerNamed(name)
		if err != nil {
			panic(err)
		}
		if strings.HasSuffix(name, "-v2") || strings.Contains(name, "cx7") {
			e.LinkRate *= c.LinkGBs / 450
			e.NetRate *= c.NetGBs / 50
		}
		if t := e.Time(l); t < best.Micros {
			best.By, best.Micros = name, t
		}
	}
	if l.Ranks <= 1 {
		best.Micros = 0
	}
	return best
}

// commTime returns microseconds of all collectives of one forward. n tokens in all, mine on the fullest replica.
func commTime(m Model, c Cluster, l Layout, n, mine float64, o Options) float64 {
	row := float64(m.Hidden) * bf16Sz
	tp := 0.0
	if l.TP > 1 {
		tp = AllReduceTime(c, mine*row, l.TP, o.Multicast).Micros
	}
	total := 2 * tp * float64(m.DenseLayers)
	moe := float64(m.MoELayers())
	switch {
	case l.UseExchange() && l.Backend == AllToAll:
		skew := ExpertSkew(m, l.ExpertRanks(), o) // the hottest rank receives so much more
		d := Load{Routing: m.Routing(), Tokens: skew * mine / float64(l.TP), RowBytes: row + 8*float64(m.TopK), Ranks: l.Ranks(),
			PerNode: c.GPUsPerNode}
		if o.WireFP8 {
			d.RowBytes = float64(FP8.Bytes(1, int64(m.Hidden))) + 8*float64(m.TopK)
		}
		k := d
		k.RowBytes, k.Combine = row, true
		total += moe * (tp + ExchangeTime(c, d).Micros + ExchangeTime(c, k).Micros)
	case l.DP > 1 && !l.Replicas:
		one := GatherTime(c, n*row, l.Ranks(), o.BroadcastLL).Micros
		total += moe * (tp + 2*one)
	default:
		total += moe * 2 * tp
	}
	if l.PP > 1 {
		total += float64(l.PP-1) * n * row / c.LinkGBs / 1e3
	}
	return total
}
