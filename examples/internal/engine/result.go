package engine

import (
	"fmt"

	"github.com/weftgo/weft/examples/internal/batch"
	"github.com/weftgo/weft/examples/internal/sampling"
	"github.com/weftgo/weft/examples/internal/scheduler"
	"github.com/weftgo/weft/internal/par"
)

// result is what one step gave one request.
type result struct {
	sampled bool // token, logprob and top are set
	token   int32
	logprob float32
	top     []TopLogprob
	echo    []float32 // of the prompt tokens that the step's rows tell of
	echoTop [][]TopLogprob
	err     error
}

// read puts into res what the request wants of rows [s.NumLogits, vocab].
func (r *replica) read(res *result, q *scheduler.Sequence, s *batch.Seq, rows []float32) {
	*res = result{}
	h := q.Owner.(*Handle)
	vocab := r.engine.cfg.VocabSize
	end := s.Start + len(s.Tokens)
	first := end - s.NumLogits // position of rows[0]; the row at p is about the token at p+1
	if n := min(end, q.NumPrompt-1) - first; q.Score && n > 0 {
		if res.err = res.score(h, first, n, rows, vocab); res.err != nil {
			return
		}
	}
	if end < len(q.Tokens) || q.MaxTokens == 0 {
		return
	}
	row := rows[len(rows)-vocab:]
	var forbidden []int32
	if q.NumGenerated() < h.request.MinTokens {
		forbidden = h.stops
	}
	res.token, res.err = r.sampler.Pick(row, &h.request.Sampling, sampling.Context{Prompt: q.Tokens[:q.NumPrompt],
		Output: q.Tokens[q.NumPrompt:], Forbidden: forbidden, Seed: h.seed, Position: end})
	if res.err == nil && h.request.Logprobs >= 0 {
		res.logprob, res.top, res.err = logprobs(row, res.token, h.request.Logprobs)
	}
	if res.err != nil {
		res.err = fmt.Errorf("request %d: token %d: %w", q.ID, end, res.err)
	}
	res.sampled = res.err == nil
}

// score fills res.echo with the log-probabilities of the n prompt tokens after position first.
func (res *result) score(h *Handle, first, n int, rows []float32, vocab int) error {
	res.echo = make([]float32, n)
	if h.request.Logprobs > 0 {
		res.echoTop = make([][]TopLogprob, n)
	}
	errs := make([]error, n)
	par.For(n, max(1, 1<<15/vocab), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			var top []TopLogprob
			res.echo[i], top, errs[i] = logprobs(rows[i*vocab:(i+1)*vocab], h.seq.Tokens[first+i+1], max(h.request.Logprobs, 0))
			if res.echoTop != nil {
				res.echoTop[i] = top
			}
		}
	})
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("request %d: prompt token %d: %w", h.seq.ID, first+i+1, err)
		}
	}
	return nil
}

func logprobs(row []float32, token int32, k int) (float32, []TopLogprob, error) {
	var top []TopLogprob
	if k > 0 {
		top = make([]TopLogprob, k)
	}
	logprob, n, err := sampling.Logprobs(row, token, top)
	return logprob, top[:n], err
}
