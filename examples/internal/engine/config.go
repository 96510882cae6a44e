package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/examples/internal/batch"
	"github.com/weftgo/weft/moe"
	"github.com/weftgo/weft/trace"
)

// Model is one rank's part of a model. The rank's goroutine uses it.
type Model interface {
	// Forward runs one step and returns logits [b.NumLogits(), vocab] in row-major order, valid until the next
	// Forward and complete on every tensor-parallel rank. An empty batch takes part in every exchange with zero tokens.
	Forward(s comm.Stream, b *batch.Batch) (logits []float32, err error)
}

// Waiter is a Model that tells, to any goroutine, whether its rank is in a collective. With it the engine's watchdog names the rank that
// is stuck and not those that wait for it.
type Waiter interface{ InCollective() bool }

// Config is what an engine is made of. It does not change after New.
type Config struct {
	Layout    moe.Parallel // its size is the world's
	VocabSize int
	EOS       []int32 // ids that end a request, unless it ignores them

	MaxBatchedTokens int // tokens of one step of one replica
	MaxSeqs          int // requests that run at once on one replica
	MaxModelLen      int // tokens of one request, prompt and output together
	// MaxLogits is the rows of logits of one step of one replica, which scored prompts need for each token. 0 means as many
	// as 256 MiB hold, at least MaxSeqs.
	MaxLogits int

	BlockSize, NumBlocks int // of the key/value cache of one replica
	// PrefixCaching lets a request use the keys and values that requests with the same beginning and CacheSalt computed on its
	// replica, in full blocks.
	PrefixCaching bool
	// WaitForPrefix holds a request back for the step in which another computes at least half of what it has left, so that
	// requests that arrive together and begin alike compute that once. It needs PrefixCaching.
	WaitForPrefix bool

	// StepTimeout is how long one rank may take for one step, without what the engine waits for, before the world is given up. 0
	// means 5 minutes. Collectives have the world's own timeout; whichever ends first names the rank that does not come.
	StepTimeout time.Duration
	Policy      Policy          // which replica gets a request; nil means RoundRobin
	Tracer      *trace.Recorder // steps, samplings and agreements of each rank; nil records nothing
}

// check completes the defaults and reports what cannot work.
func (c *Config) check(world *comm.World, numModels int) error {
	switch {
	case c.Layout.TP < 1 || c.Layout.DP < 1 || c.Layout.Size() != world.Size():
		return fmt.Errorf("engine: tp %d x dp %d is not the world's %d ranks", c.Layout.TP, c.Layout.DP, world.Size())
	case len(world.Local()) != world.Size():
		return fmt.Errorf("engine: %d of the world's %d ranks are in this process; it needs all", len(world.Local()), world.Size())
	case numModels != world.Size():
		return fmt.Errorf("engine: %d models for %d ranks", numModels, world.Size())
	case c.VocabSize < 1:
		return fmt.Errorf("engine: vocabulary of %d tokens", c.VocabSize)
	case c.WaitForPrefix && !c.PrefixCaching:
		return errors.New("engine: WaitForPrefix needs PrefixCaching")
	case c.StepTimeout < 0:
		return fmt.Errorf("engine: step timeout %v", c.StepTimeout)
	}
	for _, id := range c.EOS {
		if id < 0 || int(id) >= c.VocabSize {
			return fmt.Errorf("engine: EOS id %d is not in [0, %d)", id, c.VocabSize)
		}
	}
	if c.StepTimeout == 0 {
		c.StepTimeout = 5 * time.Minute
	}
	if c.MaxLogits == 0 {
		c.MaxLogits = max(c.MaxSeqs, maxLogitBytes/(4*c.VocabSize))
	}
	if c.Policy == nil {
		c.Policy = RoundRobin()
	}
	return nil
}

const maxLogitBytes = 256 << 20
