package moe

import (
	"github.com/weftgo/weft/internal/gemm"
	"github.com/weftgo/weft/internal/par"
	"github.com/weftgo/weft/internal/simd"
)

// A router scores the experts for each token and chooses. It is the same on every rank, and what it does to a row
// depends on that row alone.
type router struct {
	numExperts, topK      int
	scoring               Scoring
	renormalize           bool
	scale                 float32
	numGroups, topKGroups int
	method                TopKMethod
	weight                *gemm.Packed // [numExperts, hidden]
	bias                  []float32    // [numExperts] or nil

	// The call in progress.
	ids     []int32   // [numTokens, topK]
	weights []float32 // [numTokens, topK]
	x       []float32 // [numTokens, hidden]
	logits  []float32 // [numTokens, numExperts]
	choice  []float32 // [numTokens, numExperts] with a bias
	best    []float32 // [numTokens, topK]
	fn      func(lo, hi int)
}

// routerRows is how many rows one goroutine takes at a time.
const routerRows = 64

func newRouter(cfg Config, w Weights) *router {
	r := &router{
		numExperts: cfg.NumExperts, topK: cfg.TopK, scoring: cfg.Scoring, renormalize: cfg.Renormalize, scale: cfg.Scale,
		numGroups: cfg.NumGroups, topKGroups: cfg.TopKGroups, method: cfg.TopKMethod,
		weight: gemm.Pack(w.Router, cfg.NumExperts, cfg.Hidden, cfg.Hidden),
	}
	if r.scale == 0 {
		r.scale = 1
	}
	if w.Bias != nil {
		r.bias = append([]float32(nil), w.Bias...)
	}
	r.fn = r.rows
	return r
}

// route chooses for the rows of x [numTokens, hidden]: ids and weights [numTokens, topK].
func (r *router) route(ws *Workspace, ids []int32, weights, x []float32, numTokens int) {
	r.ids, r.weights, r.x = ids, weights, x
	r.logits = grow(&ws.logits, numTokens*r.numExperts)
	r.best = grow(&ws.best, numTokens*r.topK)
	if r.bias != nil {
		r.choice = grow(&ws.choice, numTokens*r.numExperts)
	}
	par.For(numTokens, routerRows, r.fn)
	r.ids, r.weights, r.x = nil, nil, nil
}

func (r *router) rows(lo, hi int) {
	hidden := r.weight.K()
	r.weight.Mul(r.logits[lo*r.numExperts:], r.numExperts, r.x[lo*hidden:], hidden, hi-lo, false)
	for i := lo; i < hi; i++ {
		scores := r.logits[i*r.numExperts : (i+1)*r.numExperts]
		choice := scores
		if r.bias != nil {
			choice = r.choice[i*r.numExperts : (i+1)*r.numExperts]
		}
		k0, k1 := i*r.topK, (i+1)*r.topK
		r.row(r.ids[k0:k1], r.weights[k0:k1], scores, choice, r.best[k0:k1])
	}
}

// row routes one token. scores holds its logits and is overwritten; choice [numExperts] and best [topK] are scratch, choice
// may be scores when there is no bias.
func (r *router) row(ids []int32, weights, scores, choice, best []float32) {
	if r.scoring == Softmax {
		softmax(scores)
	} else {
		sigmoid(scores)
	}
	if r.bias != nil {
		for e, s := range scores {
			choice[e] = s + r.bias[e]
		}
	}
	if r.topKGroups > 0 {
		topKGroups(ids, best, choice, r.numGroups, r.topKGroups, r.method)
	} else {
		simd.TopK(ids, choice)
	}
	var sum float32
	for j, e := range ids {
		weights[j] = scores[e]
		sum += scores[e]
	}
	if r.renormalize {
		sum += 1e-20 // so that scores which are all zero give zero weights
		for j := range weights {
			weights[j] /= sum
		}
	}
	if r.scale != 1 {
		for j := range weights {
			weights[j] *= r.scale
		}
	}
}

// softmax turns logits into probabilities; a row with NaN or +Inf becomes NaN.
func softmax(x []float32) {
	sum := simd.SoftmaxExp(x, x, simd.Max(x))
	simd.Scale(x, 1/sum)
}

// sigmoid turns logits into 1 / (1 + exp(-x)).
func sigmoid(x []float32) {
	simd.Scale(x, -1)
	simd.Exp(x, x)
	for i, e := range x {
		x[i] = 1 / (1 + e)
	}
}
