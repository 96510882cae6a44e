package detok

// Stops are stop strings in the form that a Matcher runs. Any number of matchers may share them; nil has none.
type Stops struct{ list []stop }

type stop struct {
	text string
	back []int16 // [len(text)] length of the longest proper beginning of text that text[:i+1] ends with (Knuth, Morris and Pratt 1977)
}

// Compile prepares stop strings, none of them empty or longer than 32767 bytes.
func Compile(texts []string) *Stops {
	s := &Stops{}
	for _, text := range texts {
		back := make([]int16, len(text))
		k := int16(0)
		for i := 1; i < len(text); i++ {
			for k > 0 && text[k] != text[i] {
				k = back[k-1]
			}
			if text[k] == text[i] {
				k++
			}
			back[i] = k
		}
		s.list = append(s.list, stop{text, back})
	}
	return s
}

// Matcher finds the first stop string in a text that comes in pieces: the one that ends first, and of those the longest.
// So the result does not depend on how the text is cut. Each byte of the text costs a few steps for each stop string, whatever their
// lengths. One goroutine uses it at a time.
type Matcher struct {
	stops   []stop
	include bool
	at      []int16 // of each stop string, how much of it the text so far ends with
	held    string  // the longest of these ends
}

// NewMatcher returns a matcher of stop strings; with include the stop string is part of the text.
func NewMatcher(stops *Stops, include bool) *Matcher {
	m := &Matcher{include: include}
	if stops != nil {
		m.stops, m.at = stops.list, make([]int16, len(stops.list))
	}
	return m
}

// Push adds a piece and returns what is now sure to belong to the text. If hit is not "", that stop string was found, and
// the text ends here.
func (m *Matcher) Push(piece string) (text, hit string) {
	if len(m.stops) == 0 {
		return piece, ""
	}
	all := m.held + piece
	for i := len(m.held); i < len(all); i++ {
		for j := range m.stops {
			s, k := &m.stops[j], m.at[j]
			for k > 0 && s.text[k] != all[i] {
				k = s.back[k-1]
			}
			if s.text[k] == all[i] {
				k++
			}
			m.at[j] = k
			if int(k) == len(s.text) && len(s.text) > len(hit) {
				hit = s.text
			}
		}
		if hit != "" {
			end := i + 1
			if !m.include {
				end -= len(hit)
			}
			m.held = ""
			return all[:end], hit
		}
	}
	keep := int16(0)
	for _, k := range m.at {
		keep = max(keep, k)
	}
	cut := len(all) - int(keep)
	m.held = all[cut:]
	return all[:cut], ""
}

// Flush returns what was held back: the text has ended without a stop string.
func (m *Matcher) Flush() string {
	text := m.held
	m.held = ""
	return text
}
