// Package scheduler decides what each step of one replica runs: continuous batching over a paged key/value cache.
//
//	Add ──> waiting ──admit──> running ──Append, Append, ...──> Remove
//	           ^                  │
//	           └───── preempt ────┘   the youngest gives its blocks back when none is free
//
// A step holds at most MaxBatchedTokens tokens. Sequences that generate come first, one token each; what is left of the budget
// goes to prompts, oldest first, in chunks where they do not fit. A waiting sequence is admitted when it is the oldest, a place
// among MaxSeqs is free, and there are blocks for all tokens it has. Order of arrival is kept throughout: every running
// sequence is older than every waiting one, and the oldest of all always moves on, so none starves.
//
// When a sequence that generates needs a block and none is free, the youngest running one is preempted: its blocks are freed,
// and it waits at the head of the queue to be computed again, prompt and generated tokens alike. What it generates does
// not change by that.
//
// A sequence with Score gets logits at every position of its prompt, chunk by chunk, each exactly once even if it is
// preempted in between.
//
// With a pool that caches prefixes a sequence starts behind the longest beginning of full blocks that others have computed, and
// catches up with what they compute while it waits for its turn. Blocks are shared only after the step that computed them.
// At least the last token of a sequence runs, for its logits; of a scored prompt every token runs once. With WaitForPrefix
// prompts that arrive together and begin alike are computed one after the other, each from where the first one differs.
//
// The scheduler holds no locks and starts nothing. All it knows of the model is how many tokens there are.
package scheduler
