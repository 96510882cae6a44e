package plan

import "math"

// Options are the knobs of the time model.
type Options struct {
	Multicast   bool    `json:"multicast"`    // use in-switch reduction where the cluster has it
	TokenSkew   float64 `json:"token_skew"`   // max/mean of prefill tokens per dp rank; 0 means what chance arrivals give
	Zipf        float64 `json:"zipf"`         // of expert popularity
	Redundant   int     `json:"redundant"`    // expert copies added by load balancing; 0: none
	Overlap     bool    `json:"overlap"`      // two micro-batches, one computes while the other communicates
	WireFP8     bool    `json:"wire_fp8"`     // dispatched rows in fp8
	LockstepUS  float64 `json:"lockstep_us"`  // host agreement on sizes before each forward of dp ranks; 0 means 100
	BroadcastLL bool    `json:"broadcast_ll"` // agrs from grouped low-latency broadcasts, as in the article's trace
}

func (o Options) filled() Options {
	if o.LockstepUS == 0 {
		o.LockstepUS = 100
	}
	return o
}

// Assumptions of the time model that no published table gives; they are stated wherever a time is printed.
const (
	sliceHalf = 72  // a GEMM over slices of width d reaches d/(d+72) of the rate: from the article's 40 against 44 requests/s
	stepUS    = 300 // launch and scheduling of one forward
	overlapAt = 64  // tokens per rank below which two micro-batches are not tried (SGLang breaks even at 64-128)
	llRate    = 141 // GB/s ceiling of NCCL's low-latency protocol on Hopper (nccl src/graph/tuning.cc)
)

// A Batch is what one forward computes, over all replicas.
type Batch struct {
	Prefill int `json:"prefill_tokens"`
	Decode  int `json:"decode_tokens"`
	Context int `json:"context"` // mean length of what is attended to
	Lump    int `json:"lump"`    // prompts come whole, in pieces of so many tokens; 0: evenly
}

// Tokens returns the tokens of the batch.
func (b Batch) Tokens() int { return b.Prefill + b.Decode }

// Timing is the predicted time of one forward, in milliseconds. Hidden is what overlap saves.
type Timing struct {
	Attention float64 `json:"attention_ms"` // projections and scores
	Experts   float64 `json:"experts_ms"`   // grouped products, shared and dense ones
	Comm      float64 `json:"comm_ms"`
	Host      float64 `json:"host_ms"`
	Hidden    float64 `json:"hidden_ms"`
	Bubble    float64 `json:"bubble_ms"`
	Total     float64 `json:"total_ms"`
}

// CommShare returns communication's share of the time.
func (t Timing) CommShare() float64 { return t.Comm / t.Total }

// Forward predicts the time of one forward.
func Forward(m Model, c Cluster, l Layout, b Batch, o Options) Timing {
	o = o.filled()
	t := Timing{Host: stepUS / 1e3}
	if l.DP > 1 && !l.Replicas {
		t.Host += o.LockstepUS / 1e3
	}
	t.Attention, t.Experts, t.Comm = work(m, c, l, b, o)
	perRank := float64(b.Tokens()) / float64(l.Ranks())
	if o.Overlap && perRank >= overlapAt {
		half := Batch{b.Prefill / 2, b.Decode / 2, b.Context, b.Lump / 2}
		a, e, x := work(m, c, l, half, o)
		both := 2*math.Max(a+e, x) + math.Min(a+e, x)
		t.Hidden = t.Attention + t.Experts + t.Comm - both
	}
	busy := t.Attention + t.Experts + t.Comm - t.Hidden
	if l.PP > 1 { // stages work on micro-batches one after another: as many as stages
		share := Bubble(l.PP, l.PP)
		t.Bubble = busy/float64(l.PP)/(1-share) - busy/float64(l.PP)
		busy /= float64(l.PP)
	}
	t.Total = busy + t.Bubble + t.Host
	return t
}

// work returns milliseconds of attention, experts and communication over all layers.
func work(m Model, c Cluster, l Layout, b Batch, o Options) (attention, experts, comm float64) {
	n := float64(b.Tokens())
	mine := n / float64(l.DP) // tokens of the fullest replica
	if l.DP > 1 && !l.Replicas {
		mine = (float64(b.Decode) + float64(b.Prefill)*PrefillSkew(l.DP, b, o)) / float64(l.DP)
	}
	L := float64(m.Layers)
	attention = L * (projections(m, c, l, mine) + scores(m, c, l, b, mine/math.Max(1, n)))
	experts = float64(m.MoELayers())*expertTime(m, c, l, n, mine, o) + float64(m.DenseLayers)*dense(c, l, mine, 3*m.Hidden*m.DenseIntermediate)
	comm = commTime(m, c, l, n, mine, o)
	return attention / 1e3, experts / 1e3, comm / 1e3
}

// PrefillSkew returns max/mean of prefill tokens over dp ranks in one forward: when prompts arrive by chance, a rank has a
// Poisson number of them, and everyone waits for the rank with the most. Few arrivals make it dp, many make it 1.
func PrefillSkew(dp int, b Batch, o Options) float64 {
	if o.TokenSkew > 0 {
		return o.TokenSkew
	}
	if dp <= 1 || b.Lump <= 0 || b.Prefill <= 0 {
		return 1
	}
	mean := float64(b.Prefill) / float64(dp) / float64(b.Lump)
	if mean > 50 { // as good as normal
		return 1 + math.Sqrt(2*math.Log(float64(dp))/mean)
	}
	chance := math.Exp(-mean) // of k arrivals
	below, most := chance, 0.0
	for k := 1; k < int(mean)+40+int(10*math.Sqrt(mean)); k++ {
		most += 1 - math.Pow(math.Min(1, below), float64(dp))
		chance *= mean / float64(k)
		below += chance
	}
	return math.Max(1, math.Min(most/mean, float64(dp)))
}

// gemm returns microseconds of a product with params weights (in elements) over rows rows: the slower of arithmetic and of
// reading the weights.
func gemm(c Cluster, f Format, params, rows, efficiency float64) float64 {
	rate := c.TFLOPs
	if f == FP8 && c.FP8TFLOPs > 0 {
		rate = c.FP8TFLOPs
	}
	bytes := params * float64(f.Bytes(perKiB, perKiB)) / perMiB
	return math.Max(2*params*rows/(rate*efficiency*1e6), bytes/(c.MemoryGBs*1e3))
}

func projections(m Model, c Cluster, l Layout, rows float64) float64 {
	var params float64
	for _, t := range m.Tensors() {
		if t.Part == PartAttention {
			u := t
			u.Layers, u.Format = 0, BF16
			params += float64(rankTensorBytes(m, l, u)) / bf16Sz
		}
	}
	return gemm(c, m.Format, params, rows, 1)
}

// scores returns microseconds of attention itself in one layer: arithmetic for prefill, reading the cache for decode.
func scores(m Model, c Cluster, l Layout, b Batch, share float64) float64 {
	a := m.Attention
	wide := float64(a.Heads*2*a.HeadDim) / float64(l.TP)
	if a.Kind == MLA {
		wide = float64(a.Heads*(a.NopeDim+a.RopeDim+a.VDim)) / float64(l.TP)
	}
	const prefillShare = 0.6 // of the dense rate, what causal attention kernels reach
	flops := 2 * float64(b.Prefill) * share * float64(b.Context) / 2 * wide
	read := float64(b.Decode) * share * float64(b.Context) * float64(m.KVBytesPerToken(l.TP, 1))
	return flops/(c.TFLOPs*prefillShare*1e6) + read/(c.MemoryGBs*1e3)
}

func dense(c Cluster, l Layout, rows float64, params int) float64 {
	return gemm(c, BF16, float64(params)/float64(l.TP), rows, 1)
}

// expertTime returns microseconds of the grouped products of one layer on the fullest rank, shared experts included.
func expertTime(m Model, c Cluster, l Layout, n, mine float64, o Options) float64 {
	ranks, all := l.ExpertRanks(), n
	if l.Replicas {
		all = mine
	}
	touched := 1 - math.Pow(1-m.Density(), all) // share of the experts that some token uses
	params := 3 * float64(m.Hidden) * float64(m.ExpertIntermediate) * float64(m.Experts) / float64(ranks) * touched
	rows := all * m.Density() / math.Max(touched, 1e-9) // per touched expert
	slice := float64(m.ExpertIntermediate)
	if l.EP {
		rows *= ExpertSkew(m, ranks, o)
	} else {
		slice /= float64(ranks)
	}
	t := gemm(c, m.ExpertFormat, params, rows, slice/(slice+sliceHalf))
	if m.SharedIntermediate > 0 {
		t += dense(c, l, mine, 3*m.Hidden*m.SharedIntermediate)
	}
	return t
}

// ExpertSkew returns max/mean of the expert ranks' loads under the options' popularity and balancing.
func ExpertSkew(m Model, ranks int, o Options) float64 {
	if o.Zipf == 0 || ranks <= 1 {
		return 1
	}
	shares := Skewed(m.Experts, o.Zipf)
	if redundant := max(o.Redundant, ranks-m.Experts); redundant > 0 { // no rank stays empty
		return Balanced(shares, ranks, redundant)
	}
	return Imbalance(shares, ranks)
}
