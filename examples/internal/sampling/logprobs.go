package sampling

import (
	"errors"
	"fmt"
	"math"
)

// ErrNotFinite is wrapped by errors about logits that have no softmax: a NaN, +Inf, or nothing but -Inf.
var ErrNotFinite = errors.New("logits are not finite")

// TopLogprob is a token and the natural logarithm of its probability.
type TopLogprob struct {
	ID      int32
	Logprob float32
}

// Logprobs returns the natural logarithm of token's probability under the softmax of raw logits [vocab] and fills top,
// [k], with the k most likely tokens: best first, ties to the lower id. When k > vocab it fills only [:vocab]; n is how
// many it filled. It allocates nothing, and any number of goroutines may call it at once.
func Logprobs(logits []float32, token int32, top []TopLogprob) (logprob float32, n int, err error) {
	if token < 0 || int(token) >= len(logits) {
		return 0, 0, fmt.Errorf("token %d is not in the vocabulary of %d", token, len(logits))
	}
	_, best, err := argmax(logits)
	if err != nil {
		return 0, 0, err
	}
	logSum := logSumExp(logits, best)
	// The difference from the best comes first: it is exact, and large logits lose nothing.
	logp := func(z float32) float32 { return float32(float64(z) - float64(best) - logSum) }
	n = selectTop(logits, top)
	for i := range top[:n] {
		top[i].Logprob = logp(top[i].Logprob)
	}
	return logp(logits[token]), n, nil
}

// argmax returns the best id, the lowest on ties, and its logit.
func argmax(z []float32) (id int32, best float32, err error) {
	best = float32(math.Inf(-1))
	id = -1
	for i, v := range z {
		if v <= best {
			continue
		}
		if !(v > best) {
			return 0, 0, fmt.Errorf("%w: NaN at id %d", ErrNotFinite, i)
		}
		best, id = v, int32(i)
	}
	switch {
	case id < 0:
		// Nothing was above -Inf.
		return 0, 0, fmt.Errorf("%w: all %d are -Inf", ErrNotFinite, len(z))
	case math.IsInf(float64(best), 1):
		return 0, 0, fmt.Errorf("%w: +Inf at id %d", ErrNotFinite, id)
	}
	return id, best, nil
}

// logSumExp returns log(sum(exp(z - best))), where best is the largest z.
func logSumExp(z []float32, best float32) float64 {
	m := float64(best)
	sum := 0.0
	for _, v := range z {
		if d := float64(v) - m; d > -40 { // e^-40 is below half a unit in the last place of a sum that is at least 1
			sum += expNeg(d)
		}
	}
	return math.Log(sum)
}

// selectTop fills top with the ids of the largest logits (the logit stands in Logprob), best first. Insertion into a short
// sorted list: after the first ids nearly every logit fails the one comparison with the last entry.
func selectTop(z []float32, top []TopLogprob) int {
	k := min(len(top), len(z))
	if k == 0 {
		return 0
	}
	n := 0
	for i, v := range z {
		if n == k && v <= top[k-1].Logprob {
			continue
		}
		if n < k {
			n++
		}
		j := n - 1
		for j > 0 && top[j-1].Logprob < v {
			top[j] = top[j-1]
			j--
		}
		top[j] = TopLogprob{ID: int32(i), Logprob: v}
	}
	return k
}
