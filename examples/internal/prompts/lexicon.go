package prompts

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/weftgo/weft/examples/internal/bundled"
)

// lexicon is what the text is made of: lists of words and of sentence templates,
// and the few fixed texts between them.
type lexicon struct {
	lists map[string][]string
	text  map[string]string
}

// words returns the bundled lexicon, read at the first use. It is never written
// after that, so any number of goroutines may share it.
var words = sync.OnceValue(func() *lexicon {
	lex, err := parseLexicon(bundled.Lexicon())
	if err != nil {
		panic("prompts: bundled lexicon.json: " + err.Error()) // part of the binary; tests read it too
	}
	return lex
})

// parseLexicon reads lexicon.json: an object of lists of strings, and one member
// "text" that is an object of strings.
func parseLexicon(src string) (*lexicon, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(src), &members); err != nil {
		return nil, err
	}
	lex := &lexicon{lists: make(map[string][]string, len(members))}
	for name, raw := range members {
		if name == "text" {
			if err := json.Unmarshal(raw, &lex.text); err != nil {
				return nil, fmt.Errorf("text: %w", err)
			}
			continue
		}
		var list []string
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		lex.lists[name] = list
	}
	return lex, nil
}

// list returns the list of that name. A missing or empty one would make wrong
// text, so it is a broken invariant of the bundled file.
func (l *lexicon) list(name string) []string {
	list := l.lists[name]
	if len(list) == 0 {
		panic("prompts: the lexicon has no list " + name)
	}
	return list
}

// expand fills the {slots} of a template from left to right. A slot found in env
// takes that text without a draw; any other takes one draw from its list.
func (l *lexicon) expand(rng *Rng, template string, env map[string]string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(template, "{")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, after, _ := strings.Cut(rest, "}")
		fill, given := env[name]
		if !given {
			fill = rng.pick(l.list(name))
		}
		out.WriteString(fill)
		template = after
	}
}
