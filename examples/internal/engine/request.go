package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weftgo/weft/examples/internal/sampling"
)

// Errors that Submit and Wait wrap.
var (
	ErrInvalid = errors.New("invalid request")
	ErrClosed  = errors.New("engine closed")
	ErrDead    = errors.New("engine is dead")
)

// MaxTopLogprobs is the most that Request.Logprobs may ask for.
const MaxTopLogprobs = 20

// TopLogprob is a token and the natural logarithm of its probability.
type TopLogprob = sampling.TopLogprob

// Request is one prompt to be continued or scored.
type Request struct {
	IDs       []int32 // the prompt; Submit copies it
	MaxTokens int     // tokens to generate at most; 0 only scores the prompt and needs Echo
	MinTokens int     // no stop token comes out before this many
	// Logprobs is how many of the most likely tokens come with each token; 0 gives the logprob of the token alone, -1 nothing.
	Logprobs  int
	Echo      bool    // log-probabilities of the prompt's tokens too, with as many alternatives as Logprobs
	Stop      []int32 // ids that end the request, beside the model's EOS
	IgnoreEOS bool    // EOS ids are tokens like others
	Sampling  sampling.Params
	CacheSalt string // requests share cached beginnings only with those of the same salt
}

// FinishReason says why a request ended.
type FinishReason string

// The reasons.
const (
	FinishStop   FinishReason = "stop"   // an EOS or stop id, which is the last of Output.IDs
	FinishLength FinishReason = "length" // MaxTokens or the engine's MaxModelLen
	FinishAbort  FinishReason = "abort"  // Handle.Abort, or the end of Submit's ctx
	FinishError  FinishReason = "error"  // see the error of Wait
)

// Event is one generated token.
type Event struct {
	Index   int // from 0
	ID      int32
	Logprob float32      // natural logarithm; 0 if Request.Logprobs is -1
	Top     []TopLogprob // best first; nil unless Request.Logprobs > 0
	Finish  FinishReason // of the request, if this is known to be the last token; else empty
}

// Output is what a request produced. The caller must not change the slices.
type Output struct {
	IDs      []int32        // generated, the stop token included
	Logprobs []float32      // [len(IDs)]; nil if Request.Logprobs is -1
	Top      [][]TopLogprob // [len(IDs)][Logprobs]; nil unless Request.Logprobs > 0
	Echo     []float32      // [len(prompt)] given the tokens before; the first is NaN. nil without Request.Echo
	EchoTop  [][]TopLogprob // [len(prompt)][Logprobs]; the first is nil. nil unless Echo and Logprobs > 0
	Reason   FinishReason
	Usage    Usage
	Timing   Timing
}

// Usage counts tokens. CachedTokens of the PromptTokens were not run, because the prefix cache had them.
type Usage struct{ PromptTokens, CompletionTokens, CachedTokens int }

// Timing is when things happened; what did not happen is the zero Time.
type Timing struct{ Submitted, Scheduled, FirstToken, Done time.Time }

// validate checks what does not depend on the engine's state.
func (r *Request) validate(c *Config) error {
	switch {
	case len(r.IDs) == 0:
		return errors.New("the prompt is empty")
	case r.MaxTokens < 0:
		return fmt.Errorf("max_tokens %d is negative", r.MaxTokens)
	case r.MaxTokens == 0 && !r.Echo:
		return errors.New("max_tokens 0 only makes sense with echo, to score the prompt")
	case r.MinTokens < 0 || r.MinTokens > r.MaxTokens:
		return fmt.Errorf("min_tokens %d is not in [0, max_tokens %d]", r.MinTokens, r.MaxTokens)
	case r.Logprobs < -1 || r.Logprobs > MaxTopLogprobs:
		return fmt.Errorf("logprobs %d is not in [-1, %d]", r.Logprobs, MaxTopLogprobs)
	}
	for name, ids := range map[string][]int32{"prompt": r.IDs, "stop": r.Stop} {
		for i, id := range ids {
			if id < 0 || int(id) >= c.VocabSize {
				return fmt.Errorf("%s id %d at position %d is not in [0, %d)", name, id, i, c.VocabSize)
			}
		}
	}
	if err := r.Sampling.Validate(c.VocabSize); err != nil {
		return err
	}
	if r.MinTokens == 0 {
		return nil
	}
	stops := map[int32]bool{}
	for _, id := range r.stops(c.EOS) {
		stops[id] = true
	}
	if len(stops) == c.VocabSize {
		return fmt.Errorf("min_tokens %d with all %d ids as stop tokens: no token could come", r.MinTokens, c.VocabSize)
	}
	return nil
}

// stops returns the ids that end the request.
func (r *Request) stops(eos []int32) []int32 {
	if r.IgnoreEOS {
		return slices.Clone(r.Stop)
	}
	return slices.Concat(eos, r.Stop)
}
