package engine

// Load is what a replica has to do.
type Load struct {
	Requests int // waiting and running
	Tokens   int // of their prompts, less what was expected from the prefix cache, and of their outputs at most
	// Expected is how many tokens of the new request's prompt the replica should have in its prefix cache, or is about to,
	// by the requests that were sent there before. It is 0 without Config.PrefixCaching.
	Expected int
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

// PrefixAware returns the policy that takes the replica that should have most of the prompt in its prefix cache: of several,
// the one with the fewest tokens to do, and of these the lowest. When that one has more than maxImbalance tokens more to do than the least
// loaded, or when none has anything of the prompt, it takes the least loaded. So locality never costs more
// than a wait for maxImbalance tokens, and requests with nothing in common spread out.
func PrefixAware(maxImbalance int) Policy {
	least := LeastTokens()
	return func(loads []Load, tokens int) int {
		best, idlest := 0, least(loads, tokens)
		for i, l := range loads {
			if b := loads[best]; l.Expected > b.Expected || (l.Expected == b.Expected && l.Tokens < b.Tokens) {
				best = i
			}
		}
		if loads[best].Expected == 0 || loads[best].Tokens-loads[idlest].Tokens > maxImbalance {
			return idlest
		}
		return best
	}
}
