// Package engine runs requests on a model that is spread over the ranks of a world: it takes requests, batches them on
// each data-parallel replica, keeps all ranks in lockstep and hands out tokens as they come.
//
//	Submit ──> policy ──> replica 0  scheduler ─┐ rank 0 (leader) ── publishes ──> rank 1
//	                                            │   │                               │
//	                  ──> replica 1  scheduler ─┼ rank 2 (leader) ── publishes ──> rank 3
//	                                            │   │                               │
//	                                      agree on the step (comm/lockstep): run, sleep or stop
//	                                            │   │                               │
//	                                         Forward Forward  (empty batch: dummy_step)
//	                                            │
//	            Handle <── tokens ── sample ────┘ leaders only
//
// Rank d*TP + t is tensor-parallel rank t of replica d; t = 0 leads. Each rank runs the same loop in its goroutine:
//
//  1. The leader notes the wake-up generation, schedules, and publishes the batch to its peers.
//  2. All ranks of the world agree ([lockstep.Lockstep.Agree]). Peers check that they hold their leader's batch.
//  3. If any replica has tokens, every rank runs Forward; a replica without runs an empty batch. If none has, all sleep
//     until somebody rings.
//  4. Leaders turn logits into tokens and log-probabilities, and finish what is finished.
//
// Ending a request frees its blocks at once, also in the middle of a step: blocks are only given out when the next step is
// scheduled. A consumer that does not read holds up nobody, since a Handle keeps all that its request produced.
//
// With PrefixCaching each replica keeps the keys and values of prompts that have ended, as long as it has room, and a request
// that begins like one of them starts where it differs. Which replica that is the policy decides: PrefixAware sends what
// begins alike to the same one, within bounds. Tokens and log-probabilities are those of a run without the cache, to the
// bit where a model's rows do not depend on the company they are computed in.
//
// When a rank fails, panics or does not come, the world dies, and every request, pending or later, ends with the error
// that names the rank. Logits without a softmax (NaN) fail only their own request.
package engine
