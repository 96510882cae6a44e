package moe

import (
	"fmt"
	"math"

	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/routing"
)

// Parallel says how the ranks share a model: TP x DP ranks in all, rank = dp index x TP + tp index.
type Parallel struct {
	TP, DP int
	EP     bool // experts are whole and spread over all ranks; else every expert is sliced over all ranks
}

// Size returns the number of ranks.
func (p Parallel) Size() int { return p.TP * p.DP }

// UseExchange is the gate: an exchanger is used when data-parallel ranks share experts.
func (p Parallel) UseExchange() bool { return p.DP > 1 && p.EP }

// String returns "tp8", "tp8+ep8", "dp2tp4+ep8", "dp8".
func (p Parallel) String() string {
	s := ""
	if p.DP > 1 {
		s = fmt.Sprintf("dp%d", p.DP)
	}
	if p.TP > 1 || p.DP == 1 {
		s += fmt.Sprintf("tp%d", p.TP)
	}
	if p.EP {
		s += fmt.Sprintf("+ep%d", p.Size())
	}
	return s
}

// Scoring turns router logits into scores (scoring_func in DeepSeek's configs).
type Scoring uint8

// The scorings.
const (
	Softmax Scoring = iota // over all experts, before the choice
	Sigmoid                // of each logit by itself
)

// TopKMethod says how groups are ranked when NumGroups limits the choice (topk_method in DeepSeek's configs). Without
// groups it has no effect.
type TopKMethod uint8

// The methods.
const (
	NoAuxTC            TopKMethod = iota // DeepSeek-V3: the sum of the group's two best scores, correction bias included
	GroupLimitedGreedy                   // DeepSeek-V2: the group's best score, correction bias included if there is one
)

// Config is the shape of one layer and how it is spread. All ranks give the same.
type Config struct {
	Hidden             int
	NumExperts         int
	TopK               int
	Intermediate       int // of one expert
	Scoring            Scoring
	Renormalize        bool    // chosen weights are divided by their sum (norm_topk_prob)
	Scale              float32 // factor on the weights, also when they are not renormalized (routed_scaling_factor); 0 means 1
	NumGroups          int     // group-limited top-k: experts in NumGroups equal groups, ... (n_group)
	TopKGroups         int     // ... of which the best TopKGroups may be chosen; 0 means no groups (topk_group)
	TopKMethod         TopKMethod
	SharedIntermediate int // of the shared experts together; 0 means none
	MaxTokens          int // the most rows one rank passes to Forward
	Parallel           Parallel
	Placement          routing.Placement // of whole experts; zero means linear over all ranks
	RankInvariant      bool              // same bits for every number of ranks: the exchanger sums all k expert rows in k order
	Workspace          *Workspace        // scratch memory that the layers of one rank share; nil makes one for this layer
}

// Validate reports the first field that no layer can have, with the numbers.
func (c Config) Validate() error {
	switch {
	case c.Hidden < 1 || c.NumExperts < 1 || c.Intermediate < 1:
		return fmt.Errorf("moe: hidden %d, %d experts of width %d; all must be at least 1", c.Hidden, c.NumExperts, c.Intermediate)
	case c.TopK < 1 || c.TopK > c.NumExperts:
		return fmt.Errorf("moe: top-%d of %d experts", c.TopK, c.NumExperts)
	case c.MaxTokens < 1 || c.MaxTokens > math.MaxInt32:
		return fmt.Errorf("moe: MaxTokens %d is not in [1, %d]; give the most rows that one rank passes to Forward", c.MaxTokens, math.MaxInt32)
	case math.IsNaN(float64(c.Scale)) || math.IsInf(float64(c.Scale), 0):
		return fmt.Errorf("moe: Scale %v is not finite", c.Scale)
	case c.SharedIntermediate < 0:
		return fmt.Errorf("moe: SharedIntermediate %d", c.SharedIntermediate)
	case c.Scoring > Sigmoid:
		return fmt.Errorf("moe: unknown scoring %d", c.Scoring)
	case c.TopKMethod > GroupLimitedGreedy:
		return fmt.Errorf("moe: unknown top-k method %d", c.TopKMethod)
	case c.Parallel.TP < 1 || c.Parallel.DP < 1:
		return fmt.Errorf("moe: tp %d x dp %d; both must be at least 1", c.Parallel.TP, c.Parallel.DP)
	}
	if err := c.validateGroups(); err != nil {
		return err
	}
	if c.RankInvariant && c.Parallel.Size() > 1 && !c.Parallel.UseExchange() {
		return fmt.Errorf("moe: RankInvariant with %v: partial rows of %d ranks are added in rank order; it needs an exchanger (dp > 1 with ep) or one rank",
			c.Parallel, c.Parallel.Size())
	}
	return c.validatePlacement()
}

func (c Config) validateGroups() error {
	if c.TopKGroups == 0 {
		return nil
	}
	if c.NumGroups < 1 || c.NumGroups > maxGroups || c.NumExperts%c.NumGroups != 0 {
		return fmt.Errorf("moe: %d experts in %d groups; the groups must be equal and at most %d", c.NumExperts, c.NumGroups, maxGroups)
	}
	if c.TopKGroups < 0 || c.TopKGroups > c.NumGroups {
		return fmt.Errorf("moe: the best %d of %d groups", c.TopKGroups, c.NumGroups)
	}
	if have := c.TopKGroups * (c.NumExperts / c.NumGroups); have < c.TopK {
		return fmt.Errorf("moe: top-%d of the %d experts in %d groups", c.TopK, have, c.TopKGroups)
	}
	return nil
}

func (c Config) validatePlacement() error {
	p := c.Placement
	if p.NumExperts == 0 && p.Size == 0 {
		return nil
	}
	if !c.Parallel.EP {
		return fmt.Errorf("moe: a placement of whole experts with %v, where every expert is sliced over all ranks", c.Parallel)
	}
	if p.NumExperts != c.NumExperts || p.Size != c.Parallel.Size() {
		return fmt.Errorf("moe: placement of %d experts on %d ranks, layer of %d experts on %d", p.NumExperts, p.Size, c.NumExperts, c.Parallel.Size())
	}
	if err := p.Validate(); err != nil {
		return fmt.Errorf("moe: %w", err)
	}
	return nil
}

// placement returns Placement with its default filled in.
func (c Config) placement() routing.Placement {
	if p := c.Placement; p.NumExperts != 0 || p.Size != 0 {
		return p
	}
	return routing.Placement{NumExperts: c.NumExperts, Size: c.Parallel.Size()}
}

// Exchange returns the configuration for the exchanger that New needs when c.Parallel.UseExchange. Experts hand partial
// rows to Combine, or all their rows when RankInvariant (which alltoall has and agrs refuses). Fields that the layer leaves
// free may be changed before the exchanger is made: Wire, MaxRecvRows, Overflow, Banks, Alignment, LowLatency.
func (c Config) Exchange() ep.Config {
	e := ep.Config{
		NumExperts: c.NumExperts, TopK: c.TopK, Hidden: c.Hidden, MaxTokensPerRank: c.MaxTokens, DType: dtype.F32,
		Placement: c.placement(), Layout: ep.Rows, Output: ep.PartialRows, RankInvariant: c.RankInvariant,
	}
	if c.RankInvariant {
		e.Output = ep.ExpertRows
	}
	return e
}

// SharedSlice returns the part [lo, hi) of the shared experts' width that Weights.Shared of a rank must give: all of it with
// an exchanger, where every rank runs the shared experts on its own rows, else the rank's share.
func (c Config) SharedSlice(rank int) (lo, hi int) {
	if c.Parallel.UseExchange() {
		return 0, c.SharedIntermediate
	}
	return Share(c.SharedIntermediate, c.Parallel.Size(), rank)
}

// ExpertSlice returns the part [lo, hi) of each expert's width that Weights.Expert of a rank must give: all of it with EP,
// else the rank's share.
func (c Config) ExpertSlice(rank int) (lo, hi int) {
	if c.Parallel.EP {
		return 0, c.Intermediate
	}
	return Share(c.Intermediate, c.Parallel.Size(), rank)
}

// NumLocalExperts returns how many experts Weights.Expert of a rank must give: those placed there with EP, else all.
func (c Config) NumLocalExperts(rank int) int {
	if c.Parallel.EP {
		return c.placement().NumLocal(rank)
	}
	return c.NumExperts
}

// LocalExpert returns which expert Weights.Expert(local) of a rank is.
func (c Config) LocalExpert(rank, local int) int {
	if c.Parallel.EP {
		return c.placement().LogicalOf(rank, local)
	}
	return local
}
