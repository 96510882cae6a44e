package exchange

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/par"
)

// Terms lists what a token is the sum of: rows Item[Start[t]:Start[t+1]] of a buffer, in that order, each times its
// Weight, or plain when Weight is nil.
type Terms struct {
	Start  []int32   // [numTokens+1]
	Item   []int32   // [numTerms]
	Weight []float32 // [numTerms], or nil
}

// Sums adds returned rows at their source. Like Partials it keeps the arguments of the call in progress.
type Sums struct {
	out, rows comm.Buffer
	terms     Terms
	bias      [2]comm.Buffer
	numBias   int
	body      func(lo, hi int)
}

// Sum writes row t of out [numTokens, hidden]: in fp32 from +0 the terms of t in order, then row t of each bias, rounded
// once. out may be one of the bias buffers.
func (s *Sums) Sum(out, rows comm.Buffer, terms Terms, bias []comm.Buffer) {
	if s.body == nil {
		s.body = s.tokens
	}
	s.out, s.rows, s.terms = out, rows, terms
	s.numBias = copy(s.bias[:], bias)
	par.For(out.Rows(), grain(out.Cols()*2), s.body)
	*s = Sums{body: s.body}
}

func (s *Sums) tokens(lo, hi int) {
	var buf [block]float32
	hidden := s.out.Cols()
	for t := lo; t < hi; t++ {
		first, end := s.terms.Start[t], s.terms.Start[t+1]
		for c := 0; c < hidden; c += block {
			acc := buf[:min(block, hidden-c)]
			clear(acc)
			for i := first; i < end; i++ {
				if s.terms.Weight == nil {
					add(acc, s.rows, int(s.terms.Item[i]), c)
				} else {
					addScaled(acc, s.terms.Weight[i], s.rows, int(s.terms.Item[i]), c)
				}
			}
			for _, b := range s.bias[:s.numBias] {
				add(acc, b, t, c)
			}
			store(s.out, t, c, acc)
		}
	}
}
