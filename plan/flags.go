package plan

import "fmt"

// Flag is a number of the article that does not hold, with the right one beside it.
type Flag struct {
	ID      string `json:"id"`
	Article string `json:"article"`
	Here    string `json:"here"`
}

// Flags compares the article's statements with what this model and GPU count give. They are about the model of the article
// (Qwen3-235B-A22B) on 8 GPUs at 32,768 tokens, and nil for anything else.
func Flags(m Model, gpus, tokens int) []Flag {
	if m.Layers != 94 || m.Hidden != 4096 || m.Experts != 128 || gpus != 8 || tokens != 32768 {
		return nil
	}
	gib := func(b float64) string { return fmt.Sprintf("%.1f GiB", b/perGiB) }
	tp8, tp4 := Layout{TP: 8, DP: 1, PP: 1}, Layout{TP: 4, DP: 1, PP: 1}
	dp8 := Layout{TP: 1, DP: 8, PP: 1}
	wire, exact := AllToAllFactor(8, 128, 8, "wire"), AllToAllFactor(8, 128, 8, "distinct-wire")
	inSwitch := 2 * ActivationBytes(m, tokens) * 94
	return []Flag{
		{"F1", "ep halves the weights: 55 against 110 GiB per GPU", fmt.Sprintf("tp8 and tp8+ep8 both %s; %s is tp4",
			gib(FloorBytes(m, tp8)), gib(FloorBytes(m, tp4)))},
		{"F2", "dp buys 8x KV capacity", fmt.Sprintf("%.0fx: %d KV heads are held twice at tp8 (%d against %d KiB per token and GPU)",
			8*float64(m.KVBytesPerToken(8, 94))/float64(m.KVBytesPerToken(1, 94)), m.KVHeads(), m.KVBytesPerToken(8, 94)/perKiB,
			m.KVBytesPerToken(1, 94)/perKiB)},
		{"F3", "dp8 with ep off needs 437.7 GiB per GPU", fmt.Sprintf("only separate replicas do (%s); one server slices the experts over "+
			"all ranks: %s", gib(FloorBytes(m, Layout{TP: 1, DP: 8, PP: 1, Replicas: true})), gib(FloorBytes(m, dp8)))},
		{"F5", "agrs moves 33 % more than an all-to-all (14 S against 10.5 S)", fmt.Sprintf(
			"10.5 S counts copies to the own rank; on the wire it is %.2f S (independent draws) or %.2f S (distinct experts): %.0f %% more",
			wire, exact, 100*(14/exact-1))},
		{"F4", "the router's imbalance makes the gathers ragged", "the sizes are tokens per dp rank, set by placement and scheduling before any routing"},
		{"F6", "tp8 moves 82 GiB per GPU", fmt.Sprintf("as a ring; with reduction in the switch %s to %s", gib(inSwitch), gib(inSwitch*1.125))},
		{"F7", "the GiB columns are the judge's prefill", fmt.Sprintf("they are for 32,768 tokens; a forward of 131,072 (the limit) moves %s per "+
			"GPU as a ring", gib(4*4*AllReduceFactor(8, "ring")*ActivationBytes(m, tokens)*94/8/2))},
		{"F8", "87 context requests of 111,606 tokens with 64 in flight", fmt.Sprintf("87 + 112 = 199 sequences in one forward, and %d tokens a "+
			"prompt against the stated 2,000 and more", 111606/87)},
		{"F9", "communication 20 % of tp, 47 % of dp, at 562 and 893 ms", fmt.Sprintf("those shares put the traces at %.0f and %.0f ms: the "+
			"slower layout would be the shorter one", 562/0.20, 893/0.474)},
		{"F10", "a shared posting makes warm passes 12x", fmt.Sprintf("2,500 tokens shared by 4 prompts of 3,500 save %.2fx, of 3,350 %.2fx; 12x "+
			"needs whole prompts replayed", shared(3500), shared(3350))},
		{"F11", "+ shared expert", "this model has none: 128 routed experts and nothing else"},
		{"F12", "weights 54.7 / 56.5 / 60.3 / 67.6 / 437.7 GiB", fmt.Sprintf("%.2f / %.2f / %.2f / %.2f / %.1f from the config; with "+
			"replicated KV heads, norms and routers tp8 holds %.2f", FloorBytes(m, tp8)/perGiB,
			FloorBytes(m, Layout{TP: 4, DP: 2, PP: 1, EP: true})/perGiB, FloorBytes(m, Layout{TP: 2, DP: 4, PP: 1, EP: true})/perGiB,
			FloorBytes(m, Layout{TP: 1, DP: 8, PP: 1, EP: true})/perGiB, float64(m.WeightBytes())/perGiB, float64(RankBytes(m, tp8))/perGiB)},
		{"F13", "PP moves a few hundred MiB", "256 / 768 / 1,792 MiB with 2 / 4 / 8 stages"},
		{"F14", "AMD's dp+ep win needs an efficient kernel and a slow network", "it was measured with agrs on one node of 8 MI300X"},
		{"F15", "rules for at most 128 and from 512 requests, below 1 % and above 3 % density", "128-256 requests and 1-3 % (Kimi-K2: 2.1 %) are " +
			"left open: measure"},
		{"F18", "NCCL has no primitive for ragged gathers", "NCCL 2.29 and later fuse grouped broadcasts into one ring kernel; still no public call"},
		{"F22", "1.95x imbalance, max/min", fmt.Sprintf("the tax is max/mean: between %.2f and %.2f for that max/min on 8 ranks", 8*1.95/(7*1.95+1),
			8*1.95/(1.95+7))},
	}
}

// shared returns how many times less prefill there is when 4 prompts of length tokens share their first 2,500.
func shared(length float64) float64 { return 4 * length / (2500 + 4*(length-2500)) }
