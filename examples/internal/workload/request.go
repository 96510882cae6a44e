package workload

import "github.com/weftgo/weft/examples/internal/prompts"

// MaxTokens is how many tokens an answer has: " three", " of", " five", and the
// end-of-turn token.
const MaxTokens = 4

// TopLogprobs is how many alternatives a step reports to a request that asks.
const TopLogprobs = 20

// Request is one candidate to judge, greedily (temperature 0).
type Request struct {
	Prompt      string
	Posting     int    // which posting of the load, from 0
	Candidate   int    // which candidate of it, 0 to 3
	Expected    string // the right completion's text, such as " three of five"
	MaxTokens   int
	TopLogprobs int // alternatives to report for each output token; 0 for none
}

// Requests returns the load of a profile: a function of its arguments alone.
// Four requests in a row share a posting (the last posting may have fewer).
// Every fourth request asks for top-20 log-probabilities, each posting at
// another candidate, so that they spread over replicas served in turn. Postings
// come from generator seeds below 2^32, which the bundled model never saw.
func Requests(p Profile, seed uint64) ([]Request, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	rng := prompts.NewRng(seed)
	requests := make([]Request, 0, p.NumRequests)
	for posting := 0; len(requests) < p.NumRequests; posting++ {
		words := p.MinWords + rng.Below(p.MaxWords-p.MinWords+1)
		family := prompts.Group(rng.Next()>>32, words)
		for i, c := range family.Candidates {
			if len(requests) == p.NumRequests {
				break
			}
			r := Request{
				Prompt: family.Prompt(i), Posting: posting, Candidate: i,
				Expected: prompts.Answer(c.Count), MaxTokens: MaxTokens,
			}
			if i == posting%prompts.NumCandidates {
				r.TopLogprobs = TopLogprobs
			}
			requests = append(requests, r)
		}
	}
	return requests, nil
}
