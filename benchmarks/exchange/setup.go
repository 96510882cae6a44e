package exchange

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/routing"
)

// Setup is one cell.
type Setup struct {
	Backend      string // a name that weft.NewExchanger takes
	Tokens       []int  // of each rank
	Hidden       int
	Experts      int
	TopK         int
	Intermediate int // width of an expert, for Layer
	Type         dtype.DType
	FP8          bool    // dispatched rows are f8e4m3 with scales
	LowLatency   bool    // the exchanger's mode for few tokens
	Skew         float64 // the experts of rank 0 are chosen with this share; 0 means evenly
	Zipf         float64 // expert e is chosen in proportion to 1/(e+1)^Zipf
	Seed         uint64
}

// Validate reports a cell that cannot be measured.
func (s Setup) Validate() error {
	if s.Type != dtype.F32 && s.Type != dtype.BF16 && s.Type != dtype.F16 {
		return fmt.Errorf("tokens of type %v: use float, bfloat16 or half", s.Type)
	}
	return s.config().Validate()
}

func (s Setup) ranks() int { return len(s.Tokens) }

// config is the exchanger's configuration.
func (s Setup) config() ep.Config {
	cfg := ep.Config{NumExperts: s.Experts, TopK: s.TopK, Hidden: s.Hidden, MaxTokensPerRank: max(1, slices.Max(s.Tokens)),
		DType: s.Type, Output: ep.PartialRows, LowLatency: s.LowLatency}
	if s.FP8 {
		cfg.Wire = dtype.F8E4M3
	}
	return cfg
}

func (s Setup) placement() routing.Placement {
	return routing.Placement{NumExperts: s.Experts, Size: s.ranks()}
}

// Wire is the type of dispatched rows.
func (s Setup) Wire() dtype.DType {
	if s.FP8 {
		return dtype.F8E4M3
	}
	return s.Type
}

// dispatchBytes is one dispatched row, scales included; ids and weights are not counted.
func (s Setup) dispatchBytes() int {
	if s.FP8 {
		return s.Hidden + 4*((s.Hidden+ep.ScaleGroup-1)/ep.ScaleGroup)
	}
	return s.combineBytes()
}

// combineBytes is one row on its way back.
func (s Setup) combineBytes() int { return s.Hidden * s.Type.Size() }

// exact reports whether the type holds every sum of the check.
func (s Setup) exact() bool {
	limit := map[dtype.DType]int{dtype.F32: 1 << 24, dtype.BF16: 1 << 8, dtype.F16: 1 << 11}[s.Type]
	return s.TopK*maxValue*maxWeight*maxFactor <= limit
}

// choices draws the experts [tokens, topK] of one rank, without repeats in a row.
func (s Setup) choices(rank int) []int32 {
	rng := rand.New(rand.NewPCG(s.Seed, uint64(rank)))
	share := s.popularity()
	ids := make([]int32, 0, s.Tokens[rank]*s.TopK)
	order := make([]int32, s.Experts)
	keys := make([]float64, s.Experts)
	for range s.Tokens[rank] {
		// The smallest of exponential variates with these rates are a draw without replacement.
		for e := range keys {
			order[e], keys[e] = int32(e), rng.ExpFloat64()/share[e]
		}
		slices.SortStableFunc(order, func(a, b int32) int {
			switch {
			case keys[a] < keys[b]:
				return -1
			case keys[a] > keys[b]:
				return 1
			}
			return int(a - b)
		})
		ids = append(ids, order[:s.TopK]...)
	}
	return ids
}

// popularity is how often each expert is chosen, up to a factor.
func (s Setup) popularity() []float64 {
	share := make([]float64, s.Experts)
	place := s.placement()
	first := float64(place.NumLocal(0))
	for e := range share {
		share[e] = math.Pow(float64(e+1), -s.Zipf)
		if s.Skew == 0 || s.ranks() == 1 {
			continue
		}
		if owner, _ := place.Owner(e); owner == 0 {
			share[e] = s.Skew / first
		} else {
			share[e] = (1 - s.Skew) / (float64(s.Experts) - first)
		}
	}
	return share
}
