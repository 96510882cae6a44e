package twolevel

import "github.com/weftgo/weft/routing"

// outward says which rows of one rank go to which node. A copy is one (token, node) pair; copies are ordered by node, then by
// token.
type outward struct {
	nodes, ranks, perRank int
	topK                  int
	numTokens             int
	counts                []int   // [nodes]: copies for each
	start                 []int   // [nodes+1]: first copy of each
	tokens                []int32 // [numCopies]
	codes                 []int32 // [numCopies, topK]: rank in the node x perRank + local expert, -1 for what is another node's or nobody's
	tokenStart, byToken   []int32 // the copies of each token, in node order, as in routing.Plan
	pairs                 []int32 // [size]: (token, rank) pairs for each rank
	numPairs              int
	at                    []int32 // [numTokens]: scratch
	seen                  []int32 // [ranks]: scratch
}

func newOutward(nodes, ranks, perRank, topK int) outward {
	return outward{nodes: nodes, ranks: ranks, perRank: perRank, topK: topK, counts: make([]int, nodes), start: make([]int, nodes+1),
		pairs: make([]int32, nodes*ranks), seen: make([]int32, ranks)}
}

func (o *outward) numCopies() int { return len(o.tokens) }

// build joins the copies for the ranks of each node.
func (o *outward) build(p *routing.Plan) {
	o.numTokens = p.NumTokens
	o.at = resize(o.at, p.NumTokens)
	o.tokens, o.codes = o.tokens[:0], o.codes[:0]
	for n := range o.nodes {
		o.start[n] = len(o.tokens)
		o.join(p, n)
		o.counts[n] = len(o.tokens) - o.start[n]
	}
	o.start[o.nodes] = len(o.tokens)
	o.finish()
}

// join appends the copies for one node.
func (o *outward) join(p *routing.Plan, n int) {
	lo, hi := p.Start[n*o.ranks], p.Start[(n+1)*o.ranks]
	for t := range o.at {
		o.at[t] = -1
	}
	for _, t := range p.Tokens[lo:hi] {
		o.at[t] = 0
	}
	for t, v := range o.at {
		if v == 0 {
			o.at[t] = int32(len(o.tokens))
			o.tokens = append(o.tokens, int32(t))
			for range o.topK {
				o.codes = append(o.codes, -1)
			}
		}
	}
	for r := range o.ranks {
		for c := p.Start[n*o.ranks+r]; c < p.Start[n*o.ranks+r+1]; c++ {
			row := o.codes[int(o.at[p.Tokens[c]])*o.topK:]
			for k, local := range p.Locals[int(c)*o.topK : int(c+1)*o.topK] {
				if local >= 0 {
					row[k] = int32(r*o.perRank) + local
				}
			}
		}
	}
}

// keep drops all but the first copies of each node.
func (o *outward) keep(counts []int) {
	n := 0
	for m := range o.nodes {
		first, kept := o.start[m], min(counts[m], o.counts[m])
		copy(o.tokens[n:], o.tokens[first:first+kept])
		copy(o.codes[n*o.topK:], o.codes[first*o.topK:(first+kept)*o.topK])
		o.start[m], o.counts[m] = n, kept
		n += kept
	}
	o.start[o.nodes] = n
	o.tokens, o.codes = o.tokens[:n], o.codes[:n*o.topK]
	o.finish()
}

// finish counts pairs and lists the copies by token.
func (o *outward) finish() {
	clear(o.pairs)
	o.numPairs = 0
	for n := range o.nodes {
		for r := range o.seen {
			o.seen[r] = -1
		}
		for c := o.start[n]; c < o.start[n+1]; c++ {
			for _, code := range o.codes[c*o.topK : (c+1)*o.topK] {
				if code < 0 {
					continue
				}
				if r := int(code) / o.perRank; o.seen[r] != int32(c) {
					o.seen[r] = int32(c)
					o.pairs[n*o.ranks+r]++
					o.numPairs++
				}
			}
		}
	}
	o.tokenStart = resize(o.tokenStart, o.numTokens+1)
	o.byToken = resize(o.byToken, len(o.tokens))
	clear(o.tokenStart)
	for _, t := range o.tokens {
		o.tokenStart[t+1]++
	}
	for t := range o.numTokens {
		o.tokenStart[t+1] += o.tokenStart[t]
	}
	copy(o.at, o.tokenStart)
	for c, t := range o.tokens {
		o.byToken[o.at[t]] = int32(c)
		o.at[t]++
	}
}

// resize returns a slice of n elements in s's memory if they fit, with undefined content.
func resize[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	return make([]T, n, n+n/4)
}
