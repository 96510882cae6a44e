package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// Bounds of one render.
const (
	MaxOutput = 16 << 20 // bytes
	MaxTime   = 5 * time.Second
)

// ErrRender is wrapped by Render's errors: the conversation and the template do not go together, or the template
// refused it (raise_exception), or a bound was reached.
var ErrRender = errors.New("chat template")

// Template is a parsed chat template. Any number of goroutines may use it at once.
type Template struct {
	parsed   *exec.Template
	source   string
	bos, eos string
	now      func() time.Time
}

// Input is what a template sees.
type Input struct {
	Messages []json.RawMessage // objects with at least role and content
	Tools    []json.RawMessage // JSON schemas of functions; none leaves tools undefined
	// AddGenerationPrompt asks for the beginning of the assistant's turn at the end.
	AddGenerationPrompt bool
	Extra               map[string]json.RawMessage // further variables, such as enable_thinking
}

var quiet = sync.OnceFunc(func() { gonja.SetLoggerOutput(io.Discard) })

// Parse reads a template; bos and eos are the values of bos_token and eos_token, which may be "".
func Parse(source, bos, eos string) (t *Template, err error) {
	quiet()
	defer recovered(&err)
	cfg := config.New()
	cfg.TrimBlocks, cfg.LeftStripBlocks = true, true // as Hugging Face sets them
	parsed, err := exec.NewTemplate(templateName, cfg, loader(source), environment())
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", shorten(err))
	}
	return &Template{parsed: parsed, source: source, bos: bos, eos: eos, now: time.Now}, nil
}

// Mentions reports whether the template has a word, such as the name of a variable.
func (t *Template) Mentions(word string) bool {
	for rest := t.source; ; {
		i := strings.Index(rest, word)
		if i < 0 {
			return false
		}
		before, _ := utf8.DecodeLastRuneInString(rest[:i])
		after, _ := utf8.DecodeRuneInString(rest[i+len(word):])
		if !ofWord(before) && !ofWord(after) {
			return true
		}
		rest = rest[i+len(word):]
	}
}

func ofWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// Render returns the prompt of a conversation. Errors wrap ErrRender.
func (t *Template) Render(in Input) (text string, err error) {
	defer func() {
		if err != nil {
			text, err = "", fmt.Errorf("%w: %w", ErrRender, err)
		}
	}()
	defer recovered(&err)
	order := keyOrder{}
	vars := map[string]any{
		"add_generation_prompt": in.AddGenerationPrompt, "bos_token": t.bos, "eos_token": t.eos,
		orderKey:       order,
		"strftime_now": func(format string) string { return strftime(t.now(), format) },
	}
	if vars["messages"], err = order.list(in.Messages, "message"); err != nil {
		return "", err
	}
	if len(in.Tools) > 0 {
		if vars["tools"], err = order.list(in.Tools, "tool"); err != nil {
			return "", err
		}
	}
	for name, raw := range in.Extra {
		if _, taken := vars[name]; taken {
			return "", fmt.Errorf("the variable %q cannot be set from outside", name)
		}
		if vars[name], err = order.value(raw); err != nil {
			return "", fmt.Errorf("variable %q: %w", name, err)
		}
	}
	out := &bounded{until: time.Now().Add(MaxTime)}
	if err := t.parsed.Execute(out, exec.NewContext(vars)); err != nil {
		return "", shorten(err)
	}
	return out.text.String(), nil
}

// recovered makes an error of a panic: the template engine has many paths, and none may take the server down.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("chat template: %v", p)
	}
}

// shorten keeps the innermost message: the engine wraps each error with the whole source.
func shorten(err error) error {
	var raised *raisedError
	if errors.As(err, &raised) {
		return raised
	}
	text := err.Error()
	if i := strings.LastIndex(text, raiseMark); i >= 0 {
		return &raisedError{text[i+len(raiseMark):]}
	}
	const most = 400
	if len(text) > most {
		text = "..." + strings.ToValidUTF8(text[len(text)-most:], "")
	}
	return errors.New(text)
}

// bounded is an output that ends a render which is too long or takes too long. Loops come here with every turn.
type bounded struct {
	text  strings.Builder
	until time.Time
	turns int
}

func (b *bounded) Write(p []byte) (int, error) { return b.WriteString(string(p)) }

func (b *bounded) WriteString(s string) (int, error) {
	if b.text.Len()+len(s) > MaxOutput {
		return 0, fmt.Errorf("more than %d bytes", MaxOutput)
	}
	if b.turns++; b.turns%64 == 0 && time.Now().After(b.until) {
		return 0, fmt.Errorf("not done after %v", MaxTime)
	}
	return b.text.WriteString(s)
}
