package envknob

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// Knob is one variable that weft reads.
type Knob struct {
	Name, Doc string
	Values    []string // what it may be; nil means any text
}

var (
	mu    sync.Mutex
	knobs []Knob
)

// Register declares a variable and returns it. Names begin with WEFT_; a second registration of a name panics.
func Register(name, doc string, values ...string) Knob {
	k := Knob{Name: name, Doc: doc, Values: values}
	mu.Lock()
	defer mu.Unlock()
	if !strings.HasPrefix(name, "WEFT_") {
		panic("envknob: " + name + " does not begin with WEFT_")
	}
	for _, old := range knobs {
		if old.Name == name {
			panic("envknob: " + name + " is registered twice")
		}
	}
	knobs = append(knobs, k)
	return k
}

// Get returns the value, empty when unset, or an error when it is none of Values.
func (k Knob) Get() (string, error) {
	v := os.Getenv(k.Name)
	if v != "" && k.Values != nil && !slices.Contains(k.Values, v) {
		return "", fmt.Errorf("%s=%q: use one of %s", k.Name, v, strings.Join(k.Values, ", "))
	}
	return v, nil
}

// All returns every registered variable, by name.
func All() []Knob {
	mu.Lock()
	defer mu.Unlock()
	all := slices.Clone(knobs)
	slices.SortFunc(all, func(a, b Knob) int { return strings.Compare(a.Name, b.Name) })
	return all
}
