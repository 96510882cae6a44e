package moe

// Parallel says how the ranks share a model: TP x DP ranks in all, rank = dp index x TP + tp index.
type Parallel struct {
	TP, DP int
	EP     bool // experts are whole and spread over all ranks; else every expert is sliced over all ranks
}

// Size returns the number of ranks.
func (p Parallel) Size() int { return p.TP * p.DP }

// UseExchange is the gate: an exchanger is used when data-parallel ranks share experts.
func (p Parallel) UseExchange() bool { return p.DP > 1 && p.EP }

// Scoring turns router logits into scores.
type Scoring uint8

// The scorings.
const (
	Softmax Scoring = iota
	Sigmoid
)

// Config is the shape of one layer and how it is spread.
type Config struct {
	Hidden             int
	NumExperts         int
	TopK               int
	Intermediate       int // of one expert
	Scoring            Scoring
	Renormalize        bool    // chosen weights are divided by their sum
	Scale              float32 // factor on the weights; 0 means 1
	NumGroups          int     // group-limited top-k: experts in NumGroups groups, ...
	TopKGroups         int     // ... of which the best TopKGroups may be chosen; 0 means no groups
	SharedIntermediate int     // of the shared experts together; 0 means none
	MaxTokens          int     // the most rows one rank passes to Forward
	Parallel           Parallel
}
