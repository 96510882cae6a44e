package engine

// Load is what a replica has to do.
type Load struct {
	Requests int // waiting and running
	Tokens   int // of their prompts, and of their outputs at most
}

// Policy chooses the replica for a request of that many tokens, prompt and output at most: an index of loads. The engine calls it for
// one request at a time.
type Policy func(loads []Load, tokens int) int

// RoundRobin returns the policy that takes the replicas in turn.
func RoundRobin() Policy {
	next := 0
	return func(loads []Load, _ int) int {
		i := next % len(loads)
		next = i + 1
		return i
	}
}

// LeastTokens returns the policy that takes the replica with the fewest tokens to do, the lowest of several.
func LeastTokens() Policy {
	return func(loads []Load, _ int) int {
		best := 0
		for i := range loads {
			if loads[i].Tokens < loads[best].Tokens {
				best = i
			}
		}
		return best
	}
}
