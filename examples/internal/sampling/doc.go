// Package sampling chooses the next token from a row of logits, and says how likely it was.
//
// Logits [vocab] go through these stages, each of which is off by default:
//
//	raw ──┬── log-softmax ──> log-probabilities: of the chosen token and of the best 20
//	      └── forbidden ids, logit bias ── repetition, presence, frequency penalties ── (temperature 0: best id)
//	              ── temperature ── min-p ── top-k ── top-p ── draw
//
// Log-probabilities are natural logarithms of the full softmax of the raw logits, before anything else touches them, so
// they do not depend on how a request samples. Sums of exponentials are in float64.
//
// Ties go to the lower id everywhere: in the best id, in the best 20, at the edge of top-k and of top-p.
//
// A draw adds Gumbel noise to the logits and takes the largest sum. The noise is a pure function of (seed, position, id): the same
// request with the same seed gets the same tokens in any batch, on any rank, and after a preemption; and on another layout,
// whose logits differ by rounding, unless two sums are closer than that.
//
// A row with a NaN or an infinity that a softmax cannot hold is [ErrNotFinite], never a token.
package sampling
