package moe

import "github.com/weftgo/weft/routing"

// Workspace is scratch memory of one rank's layers, which run one after another. It grows to what they need and is never
// read across calls. One goroutine uses it at a time. The zero value is ready.
type Workspace struct {
	ids            []int32   // [numTokens, topK]: of this rank's rows
	weights        []float32 // [numTokens, topK]
	logits, choice []float32 // [numTokens, numExperts]
	best           []float32 // [numTokens, topK]
	x, out, shared []float32 // [numTokens, hidden]: staged rows of other types; shared experts' rows
	sharedH        []float32 // [numTokens, stride of the shared experts]
	wide           []float32 // [numRows, hidden]: received rows of another type
	locals         []int32   // [numTokens, topK]
	index          routing.Index
	gathered       gathered
}

// gathered is everyone's rows where dp > 1 without ep.
type gathered struct {
	x, partial []float32 // [size x MaxTokens, hidden]
	ids        []int32   // [size x MaxTokens, topK]
	weights    []float32 // [size x MaxTokens, topK]
	own, all   []int32   // [1], [size]: rows of this rank, of every rank
}

// grow returns n elements of *s with unspecified contents, and replaces *s when it is too short.
func grow[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n)
	}
	return (*s)[:n]
}
