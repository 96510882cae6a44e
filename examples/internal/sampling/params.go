package sampling

import (
	"fmt"
	"math"
)

// Params says how a request samples. The zero value is greedy.
type Params struct {
	Temperature float32 // 0 is greedy: the best id after bias and penalties
	MinP        float32 // keep ids with at least MinP times the best one's probability; 0 keeps all
	TopK        int     // of these, keep the TopK best; 0 or -1 keeps all
	TopP        float32 // of these, keep the best whose share of the probabilities reaches TopP, at least one; 0 or 1 keeps all
	// RepetitionPenalty divides positive logits of ids seen in prompt or output and multiplies negative ones; 0 or 1 is off.
	RepetitionPenalty float32
	PresencePenalty   float32 // subtracted from logits of ids seen in the output
	FrequencyPenalty  float32 // subtracted once for every time that an id is in the output
	LogitBias         []Bias  // added to logits; each id once
	// Seed makes draws repeatable. With nil the engine picks one.
	Seed *int64
}

// Bias is added to the logit of one token.
type Bias struct {
	ID    int32
	Value float32
}

// Greedy reports whether the best id is taken instead of a draw.
func (p *Params) Greedy() bool { return p.Temperature == 0 }

// Validate checks ranges against a vocabulary of that size.
func (p *Params) Validate(vocab int) error {
	switch {
	case !(p.Temperature >= 0) || isInf(p.Temperature):
		return fmt.Errorf("temperature %v is not a number of at least 0", p.Temperature)
	case p.TopK < -1:
		return fmt.Errorf("top_k %d: use -1 or 0 for all, or a positive count", p.TopK)
	case !(p.TopP >= 0 && p.TopP <= 1):
		return fmt.Errorf("top_p %v is not in [0, 1]", p.TopP)
	case !(p.MinP >= 0 && p.MinP <= 1):
		return fmt.Errorf("min_p %v is not in [0, 1]", p.MinP)
	case !(p.RepetitionPenalty >= 0) || isInf(p.RepetitionPenalty):
		return fmt.Errorf("repetition_penalty %v is not a positive number", p.RepetitionPenalty)
	case !(p.PresencePenalty >= -2 && p.PresencePenalty <= 2):
		return fmt.Errorf("presence_penalty %v is not in [-2, 2]", p.PresencePenalty)
	case !(p.FrequencyPenalty >= -2 && p.FrequencyPenalty <= 2):
		return fmt.Errorf("frequency_penalty %v is not in [-2, 2]", p.FrequencyPenalty)
	}
	seen := make(map[int32]bool, len(p.LogitBias))
	for _, b := range p.LogitBias {
		switch {
		case b.ID < 0 || int(b.ID) >= vocab:
			return fmt.Errorf("logit_bias of id %d, which is not in [0, %d)", b.ID, vocab)
		case seen[b.ID]:
			return fmt.Errorf("logit_bias has id %d twice", b.ID)
		case !(b.Value >= -100 && b.Value <= 100):
			return fmt.Errorf("logit_bias %v of id %d is not in [-100, 100]", b.Value, b.ID)
		}
		seen[b.ID] = true
	}
	return nil
}

// shapes reports whether logits are changed before the best id is looked for.
func (p *Params) shapes() bool {
	return p.repeats() || p.PresencePenalty != 0 || p.FrequencyPenalty != 0 || len(p.LogitBias) > 0
}

func (p *Params) repeats() bool { return p.RepetitionPenalty != 0 && p.RepetitionPenalty != 1 }

func isInf(x float32) bool { return math.IsInf(float64(x), 0) }
