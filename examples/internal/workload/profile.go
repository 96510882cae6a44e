package workload

import (
	"errors"
	"fmt"
)

// Profile is the shape of a load. Profiles differ in prompt length, number of
// requests and requests in flight, and in nothing else.
type Profile struct {
	Name        string
	NumRequests int
	Concurrency int // requests in flight
	// Each posting's prompts have about as many words as one draw from
	// [MinWords, MaxWords].
	MinWords, MaxWords int
}

// Short has prompts of 330 to 1,050 tokens. It is what a laptop finishes in
// seconds a layout.
var Short = Profile{Name: "short", NumRequests: 32, Concurrency: 16, MinWords: 240, MaxWords: 590}

// Article has prompts of 2,000 to 4,700 tokens (the bundled model was trained up
// to 4,864), 64 in flight, as in the experiment that the judge repeats. That one sent 2,048 requests; the default
// here is two rounds of what is in flight.
var Article = Profile{Name: "article", NumRequests: 128, Concurrency: 64, MinWords: 1700, MaxWords: 3150}

// ByName returns the profile called "short" or "article".
func ByName(name string) (Profile, error) {
	for _, p := range []Profile{Short, Article} {
		if p.Name == name {
			return p, nil
		}
	}
	return Profile{}, fmt.Errorf("workload: no profile %q: use %q or %q", name, Short.Name, Article.Name)
}

// Validate returns an error that names every field that no load can have.
func (p Profile) Validate() error {
	var errs []error
	if p.NumRequests < 0 {
		errs = append(errs, fmt.Errorf("workload: NumRequests %d < 0", p.NumRequests))
	}
	if p.Concurrency < 1 {
		errs = append(errs, fmt.Errorf("workload: Concurrency %d < 1", p.Concurrency))
	}
	if p.MinWords < 0 || p.MaxWords < p.MinWords {
		errs = append(errs, fmt.Errorf("workload: words from %d to %d: want 0 <= MinWords <= MaxWords", p.MinWords, p.MaxWords))
	}
	return errors.Join(errs...)
}
