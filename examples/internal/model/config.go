package model

import (
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/moe"
	"github.com/weftgo/weft/trace"
)

// Defaults of Config.
const (
	DefaultBlockSize        = 64
	DefaultMaxBatchedTokens = 2048
)

// Config says how a model is spread over ranks and how much it may hold.
type Config struct {
	Parallel         moe.Parallel // zero TP or DP means 1
	Backend          string       // exchanger when DP > 1 with EP: "agrs", "alltoall", or "auto" (also ""), which means alltoall
	BlockSize        int          // positions in one block of keys and values, a multiple of 16; 0 means DefaultBlockSize
	NumBlocks        int          // blocks of one replica; 0 means enough for MaxBatchedTokens x 4 positions
	MaxBatchedTokens int          // the most tokens of one replica's step; 0 means DefaultMaxBatchedTokens
	RankInvariant    bool         // alltoall only: MoE layers give the same bits for every number of ranks
	MaxBytes         int64        // the most memory that one rank may need by Memory; 0 means no limit
	Lane             *trace.Lane  // where this rank's spans go; nil records nothing
}

// Exchange returns what an exchanger of this model's MoE layers is made of.
func (c Config) Exchange(m *checkpoint.Config) ep.Config {
	return c.withDefaults().moeConfig(m).Exchange()
}

// withDefaults fills in zero fields.
func (c Config) withDefaults() Config {
	c.Parallel.TP, c.Parallel.DP = max(c.Parallel.TP, 1), max(c.Parallel.DP, 1)
	if c.Backend == "" || c.Backend == "auto" {
		c.Backend = "alltoall"
	}
	if c.BlockSize == 0 {
		c.BlockSize = DefaultBlockSize
	}
	if c.MaxBatchedTokens == 0 {
		c.MaxBatchedTokens = DefaultMaxBatchedTokens
	}
	if c.NumBlocks == 0 {
		c.NumBlocks = (4*c.MaxBatchedTokens + c.BlockSize - 1) / c.BlockSize
	}
	return c
}
