package plan

import "math"

// missAll returns the chance that k distinct items out of total all miss a block of size items: C(total-size, k)/C(total, k).
func missAll(total, size, k int) float64 {
	p := 1.0
	for i := range k {
		if total-size-i <= 0 {
			return 0
		}
		p *= float64(total-size-i) / float64(total-i)
	}
	return p
}

// choose returns the binomial coefficient C(n, k) as a float.
func choose(n, k int) float64 {
	if k < 0 || k > n {
		return 0
	}
	c := 1.0
	for i := range k {
		c *= float64(n-i) / float64(i+1)
	}
	return c
}

// FanoutIndependent returns how many of parts a token reaches on average when its topK choices are independent draws of
// parts: P(1-(1-1/P)^k). The literature's usual approximation; the token's own part counts.
func FanoutIndependent(parts, topK int) float64 {
	p := float64(parts)
	return p * (1 - math.Pow(1-1/p, float64(topK)))
}

// FanoutDistinct returns the same for topK distinct experts out of experts, spread evenly over parts:
// P(1-C(E-E/P,k)/C(E,k)). Parts that do not divide the experts, or outnumber them, are taken to hold replicas up to the next
// multiple.
func FanoutDistinct(parts, experts, topK int) float64 {
	experts = physical(parts, experts)
	return float64(parts) * (1 - missAll(experts, experts/parts, min(topK, experts)))
}

// FanoutGrouped returns the same when a token first picks topGroups of groups (DeepSeek's node-limited routing) and its topK
// experts among them. With groups of 0 or 1, or all picked, it is [FanoutDistinct].
func FanoutGrouped(parts, experts, topK, groups, topGroups int) float64 {
	experts = physical(parts, experts)
	if groups <= 1 || topGroups >= groups || topGroups < 1 || experts%groups != 0 ||
		parts%groups != 0 && groups%parts != 0 {
		return FanoutDistinct(parts, experts, topK)
	}
	open := experts / groups * topGroups // experts a token may choose from
	if parts >= groups {
		live := parts / groups * topGroups
		return float64(live) * (1 - missAll(open, experts/parts, topK))
	}
	per, hit := groups/parts, 0.0 // groups in a part: j of them open with hypergeometric chance
	for j := 1; j <= min(per, topGroups); j++ {
		chance := choose(per, j) * choose(groups-per, topGroups-j) / choose(groups, topGroups)
		hit += chance * (1 - missAll(open, j*experts/groups, topK))
	}
	return float64(parts) * hit
}

// physical returns the number of expert copies when parts must hold equally many: the next multiple of parts.
func physical(parts, experts int) int { return (experts + parts - 1) / parts * parts }

// A Counting is one way to count bytes; tables of different sources mix them.
type Counting struct {
	ID   string `json:"id"`   // short name, as printed
	Text string `json:"text"` // what is counted
}

// The countings of bytes.
var Countings = []Counting{
	{"ring", "all-reduce as a ring: every rank sends 2(P-1)/P of S"},
	{"in-switch-low", "all-reduce in the switch, best case: every rank sends and receives S once"},
	{"in-switch", "all-reduce in the switch, each rank load-reduces and multicasts its shard: (1+1/P)S"},
	{"self", "all-to-all, independent draws, a token's copy to its own rank counted"},
	{"wire", "all-to-all, independent draws, only copies that leave the rank"},
	{"distinct-self", "all-to-all, distinct experts, the own rank counted"},
	{"distinct-wire", "all-to-all, distinct experts, only copies that leave the rank: what a wire counter shows"},
	{"expanded-wire", "all-to-all without merging: one copy per token and expert, leaving the rank"},
}

// A Volume is bytes moved by one operation or one forward, per GPU and over all GPUs, in units of S and in bytes.
type Volume struct {
	Counting  string  `json:"counting"`
	Aggregate float64 `json:"aggregate_bytes"`
	PerGPU    float64 `json:"per_gpu_bytes"`
	UnitsOfS  float64 `json:"aggregate_in_s"` // aggregate / S, of one layer
}

// AllReduceFactor returns aggregate bytes over S of one all-reduce of S bytes on p ranks.
func AllReduceFactor(p int, counting string) float64 {
	switch counting {
	case "in-switch-low":
		return float64(p)
	case "in-switch":
		return float64(p) * (1 + 1/float64(p))
	}
	return 2 * float64(p-1)
}

// AgRsFactor returns aggregate bytes over S of one all_gatherv plus one reduce_scatterv, S being all ranks' rows together.
func AgRsFactor(p int) float64 { return 2 * float64(p-1) }

// AllToAllFactor returns aggregate bytes over S of one dispatch and one combine on p ranks, both in the activations' type.
func AllToAllFactor(p, experts, topK int, counting string) float64 {
	wire := float64(p-1) / float64(p)
	switch counting {
	case "self":
		return 2 * FanoutIndependent(p, topK)
	case "wire":
		return 2 * FanoutIndependent(p, topK) * wire
	case "distinct-self":
		return 2 * FanoutDistinct(p, experts, topK)
	case "expanded-wire":
		return 2 * float64(topK) * wire
	}
	return 2 * FanoutDistinct(p, experts, topK) * wire
}

// HandOffFactor returns the aggregate bytes over S of a whole forward over stages pipeline stages: p-1 point-to-point sends.
func HandOffFactor(stages int) float64 { return float64(stages - 1) }

// Bubble returns the idle share of a pipeline: (p-1)/(m+p-1) for m micro-batches on p stages.
func Bubble(stages, microBatches int) float64 {
	return float64(stages-1) / float64(microBatches+stages-1)
}

// An Exchange says how many row copies of a rank's tokens travel over which link, by one dispatch; a combine moves the same
// copies back.
type Exchange struct {
	NVLink  float64 `json:"nvlink_copies"`  // copies per token that cross NVLink, forwarded ones included
	Network float64 `json:"network_copies"` // copies per token that cross the network
	Logical float64 `json:"logical_copies"` // copies per token, own rank (flat) or own node (hierarchical) included
}

// Scheme says what an exchange merges.
type Scheme uint8

// The schemes.
const (
	Flat         Scheme = iota // one copy per token and destination rank
	Hierarchical               // one copy per token and node over the network, then one per rank over NVLink
	Expanded                   // one copy per token and expert, as the low-latency kernels send
)

// String returns "flat", "hierarchical" or "expanded".
func (s Scheme) String() string { return [...]string{"flat", "hierarchical", "expanded"}[s] }

// Routing is what of a model decides where its tokens go.
type Routing struct{ Experts, TopK, Groups, TopGroups int }

// Copies returns the copies per token of an exchange over ranks GPUs, perNode on each node.
func (r Routing) Copies(s Scheme, ranks, perNode int) Exchange {
	nodes := max(1, (ranks+perNode-1)/perNode)
	d := FanoutGrouped(ranks, r.Experts, r.TopK, r.Groups, r.TopGroups)
	if s == Expanded {
		d = float64(r.TopK)
	}
	p, g := float64(ranks), float64(min(ranks, perNode))
	if nodes == 1 {
		return Exchange{NVLink: d * (p - 1) / p, Logical: d}
	}
	if s != Hierarchical {
		return Exchange{NVLink: d * (g - 1) / p, Network: d * (p - g) / p, Logical: d}
	}
	dn := FanoutGrouped(nodes, r.Experts, r.TopK, r.Groups, r.TopGroups)
	return Exchange{NVLink: d * (g - 1) / g, Network: dn * float64(nodes-1) / float64(nodes), Logical: dn}
}
