package toolcall

import (
	"encoding/json"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The tags around a call.
const (
	opening = "<tool_call>"
	closing = "</tool_call>"
)

// Call is a call of a function.
type Call struct {
	Name      string
	Arguments string // a JSON object as the model wrote it
}

// Parser separates the calls in a text from the rest. The zero value is ready; one goroutine uses it at a time.
type Parser struct {
	held   string // text that may yet become a call, or space before one
	inside bool   // held begins after an opening tag
	space  string // inside: what stood before that tag, which counts if there is no call
	first  int    // inside: where to look for the next closing tag
	after  bool   // a call has ended, and nothing but space came since
}

// Push adds a piece and returns what is now sure: content, and the calls that have ended. Content that is returned together with
// calls may come from before, between or after them.
func (p *Parser) Push(piece string) (content string, calls []Call) {
	p.held += piece
	var b strings.Builder
	for {
		if p.inside {
			call, ok := p.endOfCall(&b)
			if call != nil {
				calls = append(calls, *call)
			}
			if !ok {
				break
			}
			continue
		}
		i := strings.Index(p.held, opening)
		if i < 0 {
			p.write(&b, p.held[:len(p.held)-unsure(p.held)])
			p.held = p.held[len(p.held)-unsure(p.held):]
			break
		}
		text := strings.TrimRightFunc(p.held[:i], unicode.IsSpace)
		p.write(&b, text)
		p.space = p.held[len(text):i]
		p.held, p.inside, p.first = p.held[i+len(opening):], true, 0
	}
	return b.String(), calls
}

// Flush ends the text and returns what was held back. A last call may lack its end tag.
func (p *Parser) Flush() (content string, calls []Call) {
	var b strings.Builder
	held := p.held
	p.held = ""
	if !p.inside {
		p.write(&b, held)
		return b.String(), nil
	}
	p.inside = false
	if call, _ := parse(held); call != nil {
		p.after = true
		return "", []Call{*call}
	}
	// It was none. What follows the first end tag, if there was one, may have others.
	end := len(held)
	if i := strings.Index(held, closing); i >= 0 {
		end = i + len(closing)
	}
	p.write(&b, p.space+opening+held[:end])
	if end == len(held) {
		return b.String(), nil
	}
	more, calls := p.Push(held[end:])
	rest, last := p.Flush()
	return b.String() + more + rest, append(calls, last...)
}

// endOfCall looks for the end of the call that is held. ok is false when it has not come.
func (p *Parser) endOfCall(b *strings.Builder) (call *Call, ok bool) {
	for {
		i := strings.Index(p.held[p.first:], closing)
		if i < 0 {
			p.first = max(p.first, len(p.held)-len(closing)+1)
			return nil, false
		}
		body, end := p.held[:p.first+i], p.first+i+len(closing)
		call, open := parse(body)
		if open { // the tag stands in a string
			p.first = end
			continue
		}
		p.inside = false
		if call == nil {
			p.write(b, p.space+opening+p.held[:end])
		}
		p.after = call != nil
		p.held = p.held[end:]
		return call, true
	}
}

// write adds content; space after a call does not count.
func (p *Parser) write(b *strings.Builder, s string) {
	if p.after {
		s = strings.TrimLeftFunc(s, unicode.IsSpace)
	}
	if s != "" {
		p.after = false
		b.WriteString(s)
	}
}

// unsure returns the length of the end of s that may belong to a call: the beginning of an opening tag, and space before it.
func unsure(s string) int {
	n := 0
	for k := min(len(opening)-1, len(s)); k > 0; k-- {
		if strings.HasSuffix(s, opening[:k]) {
			n = k
			break
		}
	}
	for n < len(s) {
		r, size := utf8.DecodeLastRuneInString(s[:len(s)-n])
		if !unicode.IsSpace(r) {
			break
		}
		n += size
	}
	return n
}

// parse reads the inside of a call; nil if it is none. open says that it ends within a string of JSON.
func parse(body string) (c *Call, open bool) {
	d := json.NewDecoder(strings.NewReader(body))
	var members map[string]json.RawMessage
	if err := d.Decode(&members); err != nil {
		return nil, endsInString(body)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, false
	}
	c = &Call{Arguments: "{}"}
	if json.Unmarshal(members["name"], &c.Name) != nil || c.Name == "" {
		return nil, false
	}
	args := members["arguments"]
	var text string
	if json.Unmarshal(args, &text) == nil && text != "" { // some models write the object as a string, null is none
		args = json.RawMessage(strings.TrimSpace(text))
	}
	var object map[string]json.RawMessage
	switch {
	case len(args) == 0 || string(args) == "null" || string(args) == `""`:
	case json.Unmarshal(args, &object) != nil || object == nil:
		return nil, false
	default:
		c.Arguments = string(args)
	}
	return c, false
}

// endsInString reports whether text that should be JSON ends between the quotes of a string.
func endsInString(text string) (in bool) {
	for i := 0; i < len(text); i++ {
		switch {
		case in && text[i] == '\\':
			i++
		case text[i] == '"':
			in = !in
		}
	}
	return in
}
