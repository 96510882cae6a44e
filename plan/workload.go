package plan

import (
	"fmt"
	"strings"
)

// A Workload is what clients ask for, as a closed loop.
type Workload struct {
	Name      string `json:"name"`
	Prompt    int    `json:"prompt_tokens"` // mean
	MaxPrompt int    `json:"max_prompt_tokens"`
	Output    int    `json:"output_tokens"` // mean
	InFlight  int    `json:"in_flight"`
	Note      string `json:"note"`
	// Cached is the share of prompt tokens that the prefix cache already has.
	Cached float64 `json:"cached"`
}

// Kind says what bounds a workload.
func (w Workload) Kind() string {
	switch {
	case w.Output*50 <= w.Prompt:
		return "prefill-bound"
	case w.Output >= w.Prompt:
		return "decode-heavy"
	}
	return "mixed"
}

// Validate returns an error unless all numbers are positive.
func (w Workload) Validate() error {
	if w.Prompt <= 0 || w.Output <= 0 || w.InFlight <= 0 || w.MaxPrompt < w.Prompt {
		return fmt.Errorf("plan: workload %q: prompts of %d (at most %d) tokens, %d output tokens, %d in flight; all must be positive "+
			"and the longest prompt at least the mean", w.Name, w.Prompt, w.MaxPrompt, w.Output, w.InFlight)
	}
	if w.Cached < 0 || w.Cached >= 1 {
		return fmt.Errorf("plan: workload %q finds the share %g of its prompts in the prefix cache; want 0 or more and less than 1", w.Name,
			w.Cached)
	}
	return nil
}

// computed returns the tokens of a request that are computed: the prompt's without the cached ones, and the output's.
func (w Workload) computed() float64 { return float64(w.Prompt)*(1-w.Cached) + float64(w.Output) }

var workloads = map[string]Workload{
	"judge": {Prompt: 3350, MaxPrompt: 4700, Output: 4, InFlight: 64,
		Note: "reward judge: prompts of 2,000-4,700 tokens, four tokens out, 64 in flight, 2,048 requests a step"},
	"chat": {Prompt: 1024, MaxPrompt: 8192, Output: 256, InFlight: 256,
		Note: "turns of a conversation"},
	"decode-heavy": {Prompt: 1024, MaxPrompt: 4096, Output: 4096, InFlight: 1024,
		Note: "long answers or reasoning at high concurrency"},
}

// WorkloadNames returns the names of the presets.
func WorkloadNames() []string { return names(workloads, nil) }

// WorkloadPreset returns the workload of that name.
func WorkloadPreset(name string) (Workload, error) {
	w, ok := workloads[strings.ToLower(name)]
	if !ok {
		return w, fmt.Errorf("plan: no workload %q; have %s", name, strings.Join(WorkloadNames(), ", "))
	}
	w.Name = strings.ToLower(name)
	return w, nil
}
