package detok

import "strings"

// Matcher finds the first stop string in a text that comes in pieces: the one that ends first, and of those the longest.
// So the result does not depend on how the text is cut. The zero value finds nothing. One goroutine uses it at a time.
type Matcher struct {
	stops   []string
	include bool
	held    string // a suffix of the text: the longest that a stop string begins with
}

// NewMatcher returns a matcher of stop strings, none of them empty; with include the stop string is part of the text.
func NewMatcher(stops []string, include bool) *Matcher {
	return &Matcher{stops: stops, include: include}
}

// Push adds a piece and returns what is now sure to belong to the text. If hit is not "", that stop string was found, and
// the text ends here.
func (m *Matcher) Push(piece string) (text, hit string) {
	m.held += piece
	if len(m.stops) == 0 {
		return m.Flush(), ""
	}
	end := len(m.held) + 1
	for _, s := range m.stops {
		if i := strings.Index(m.held, s); i >= 0 && (i+len(s) < end || i+len(s) == end && len(s) > len(hit)) {
			end, hit = i+len(s), s
		}
	}
	if hit != "" {
		if !m.include {
			end -= len(hit)
		}
		text, m.held = m.held[:end], ""
		return text, hit
	}
	keep := 0
	for _, s := range m.stops {
		for n := min(len(s)-1, len(m.held)); n > keep; n-- {
			if strings.HasSuffix(m.held, s[:n]) {
				keep = n
			}
		}
	}
	cut := len(m.held) - keep
	text, m.held = m.held[:cut], m.held[cut:]
	return text, ""
}

// Flush returns what was held back: the text has ended without a stop string.
func (m *Matcher) Flush() string {
	text := m.held
	m.held = ""
	return text
}
