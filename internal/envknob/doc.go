// Package envknob is the one place where weft reads its environment variables, so that a tool can list them all with
// their meaning and what they are set to.
package envknob
