package trace

import "strconv"

// DummyStep is the name of a step that a rank without work runs because its
// peers' experts need it in their collectives.
const DummyStep = "dummy_step"

// StepName returns the name of a forward pass over numContext requests in
// prefill with contextTokens prompt tokens between them, and numGeneration
// requests in decode with generationTokens, such as
// "execute_context_87(111606)_generation_112(112)".
func StepName(numContext, contextTokens, numGeneration, generationTokens int) string {
	return string(appendStepName(nil, [4]int64{
		int64(numContext), int64(contextTokens), int64(numGeneration), int64(generationTokens)}))
}

func appendStepName(b []byte, n [4]int64) []byte {
	b = strconv.AppendInt(append(b, "execute_context_"...), n[0], 10)
	b = strconv.AppendInt(append(b, '('), n[1], 10)
	b = strconv.AppendInt(append(b, ")_generation_"...), n[2], 10)
	b = strconv.AppendInt(append(b, '('), n[3], 10)
	return append(b, ')')
}

// executeStep is the name that ByName adds steps up under.
const executeStep = "execute"

// BeginStep opens the span of a forward pass. In the file it has the name that
// StepName gives; the name is made only there, so a step allocates nothing.
func (l *Lane) BeginStep(numContext, contextTokens, numGeneration, generationTokens int) Span {
	if l == nil {
		return Span{}
	}
	return l.begin(Step, event{name: executeStep, shape: stepArgs, args: [4]int64{
		int64(numContext), int64(contextTokens), int64(numGeneration), int64(generationTokens)}})
}

// BeginDummyStep opens the span of a step without tokens of this rank.
func (l *Lane) BeginDummyStep() Span { return l.Begin(Step, DummyStep) }
