package envknob

import (
	"fmt"
	"log/slog"
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
	mu     sync.Mutex
	knobs  []Knob
	warned = map[string]bool{} // by name and value
)

// Register declares a variable and returns it. Names begin with WEFT_; a second registration of a name panics. A variable that
// is set to none of its values is logged at once, whether or not the program comes to read it.
func Register(name, doc string, values ...string) Knob {
	k := Knob{Name: name, Doc: doc, Values: values}
	defer k.Get() // when mu is free again
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

// Get returns the value, empty when unset, or an error when it is none of Values. The first time that it meets such a value it
// logs it too, since most callers then do what they do without the variable.
func (k Knob) Get() (string, error) {
	v := os.Getenv(k.Name)
	if v == "" || k.Values == nil || slices.Contains(k.Values, v) {
		return v, nil
	}
	err := fmt.Errorf("%s=%q: use one of %s", k.Name, v, strings.Join(k.Values, ", "))
	mu.Lock()
	first := !warned[k.Name+"="+v]
	warned[k.Name+"="+v] = true
	mu.Unlock()
	if first {
		slog.Warn("an environment variable has no such value", "error", err)
	}
	return "", err
}

// All returns every registered variable, by name.
func All() []Knob {
	mu.Lock()
	defer mu.Unlock()
	all := slices.Clone(knobs)
	slices.SortFunc(all, func(a, b Knob) int { return strings.Compare(a.Name, b.Name) })
	return all
}
