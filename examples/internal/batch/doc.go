// Package batch is what the scheduler hands to the model for one step: which tokens of which sequences, where their keys
// and values go, and for which of them logits are wanted.
package batch
