package scheduler

import (
	"fmt"

	"github.com/weftgo/weft/examples/internal/kvcache"
)

// Sequence is one request as the scheduler sees it. The caller sets the first group of fields before Add and only reads
// them after; Tokens grows by Append.
type Sequence struct {
	ID        uint64
	Tokens    []int32       // the prompt, then what was generated
	MaxTokens int           // generated tokens at most; 0 only runs the prompt
	Score     bool          // logits are wanted at every position of the prompt
	Prefix    kvcache.Chain // its Salt says with whom computed blocks are shared; the scheduler fills the rest
	Owner     any           // the caller's own

	NumPrompt int // set by Add

	computed int // positions [0, computed) have keys and values in blocks
	scored   int // logits of prompt positions [0, scored) were handed out, if Score
	blocks   []int32
	state    state

	cached    int // prompt tokens that came from the prefix cache and did not run
	stored    int // blocks of which the prefix cache knows
	preempted bool
}

type state uint8

const (
	isNew state = iota
	isWaiting
	isRunning
	isDone
)

func (s state) String() string {
	if s > isDone {
		return fmt.Sprintf("state(%d)", uint8(s))
	}
	return [...]string{"new", "waiting", "running", "done"}[s]
}

// Alive reports whether the sequence waits or runs.
func (q *Sequence) Alive() bool { return q.state == isWaiting || q.state == isRunning }

// NumGenerated returns the tokens after the prompt.
func (q *Sequence) NumGenerated() int { return len(q.Tokens) - q.NumPrompt }

// NumCached returns the prompt tokens that the prefix cache saved when the prompt was first computed.
func (q *Sequence) NumCached() int { return q.cached }

// Complete reports whether every token has run, so that the last row of logits is for the next one.
func (q *Sequence) Complete() bool { return q.computed == len(q.Tokens) }

// decoding: all that is left to run is the token generated last.
func (q *Sequence) decoding() bool {
	return q.computed >= q.NumPrompt && q.computed == len(q.Tokens)-1
}

// rows returns the logits that the next n tokens give.
func (q *Sequence) rows(n int) int {
	end := q.computed + n
	switch {
	case q.Score && q.scored < q.NumPrompt:
		return max(0, end-max(q.computed, q.scored))
	case end == len(q.Tokens):
		return 1
	}
	return 0
}
