// Package detok makes the text of an answer from its tokens, as they come, and ends it at stop strings.
//
//	token ids ── tokenizer.Stream ──> characters ── Matcher ──> text that is safe to send
//	                                                   └─ holds back what may be the beginning of a stop string
//
// What was sent is never taken back: the pieces add up to the text of the whole answer, without the stop string (unless it
// is wanted), and what was held back at the end is sent then.
package detok
