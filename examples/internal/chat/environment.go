package chat

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

const templateName = "chat_template"

// loader holds one template and knows no other: there is no way to a file.
type loader string

func (l loader) Read(name string) (io.Reader, error) {
	if name != templateName {
		return nil, fmt.Errorf("a chat template cannot load %q", name)
	}
	return strings.NewReader(string(l)), nil
}

func (l loader) Resolve(name string) (string, error) {
	if name != templateName {
		return "", fmt.Errorf("a chat template cannot load %q", name)
	}
	return name, nil
}

func (l loader) Inherit(string) (loaders.Loader, error) { return l, nil }

// statements are what templates may use: all that chat templates do, none that reads another template.
var statements = []string{"for", "if", "set", "macro", "call", "filter", "raw", "with", "do", "break", "continue", "block"}

func environment() *exec.Environment {
	parsers := map[string]parser.ControlStructureParser{"generation": parseGeneration}
	for _, name := range statements {
		if p, ok := builtins.ControlStructures.Get(name); ok {
			parsers[name] = p
		}
	}
	filters := exec.NewFilterSet(map[string]exec.FilterFunction{}).Update(builtins.Filters)
	if err := filters.Replace("tojson", toJSON); err != nil {
		panic(err) // the library has lost a filter
	}
	globals := map[string]any{"range": span, "raise_exception": raise}
	for _, name := range []string{"dict", "namespace", "joiner", "cycler"} {
		globals[name], _ = builtins.GlobalFunctions.Get(name)
	}
	return &exec.Environment{
		Filters: filters, ControlStructures: exec.NewControlStructureSet(parsers), Tests: builtins.Tests,
		Methods: builtins.Methods, Context: exec.NewContext(globals),
	}
}

// maxRange is the longest list that range gives a template.
const maxRange = 1 << 16

// span is Python's range as a list, of bounded length.
func span(_ *exec.Evaluator, params *exec.VarArgs) ([]int, error) {
	n := [3]int{0, 0, 1}
	for i, a := range params.Args {
		if i >= len(n) || !a.IsInteger() {
			return nil, errors.New("range takes one to three whole numbers")
		}
		n[i] = a.Integer()
	}
	start, stop, step := n[0], n[1], n[2]
	switch {
	case len(params.Args) == 0 || step == 0:
		return nil, errors.New("range takes one to three whole numbers, the step not 0")
	case len(params.Args) == 1:
		start, stop = 0, n[0]
	}
	list := []int{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(list) == maxRange {
			return nil, fmt.Errorf("range of more than %d", maxRange)
		}
		list = append(list, i)
	}
	return list, nil
}

// raisedError is what a template says with raise_exception.
type raisedError struct{ text string }

func (e *raisedError) Error() string { return e.text }

// raiseMark separates the message from what the engine puts before it.
const raiseMark = "\x00raised\x00"

func raise(_ *exec.Evaluator, params *exec.VarArgs) (any, error) {
	return nil, errors.New(raiseMark + params.First().String())
}

// toJSON is the tojson filter that chat templates mean: json.dumps with ensure_ascii=False.
func toJSON(e *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	s := style{indent: -1, itemSep: ", ", keySep: ": "}
	for name, arg := range params.KwArgs {
		switch {
		case arg.IsNil():
		case name == "indent":
			s.indent, s.itemSep = min(max(arg.Integer(), 0), 16), ","
		case name == "ensure_ascii":
			s.ascii = arg.Bool()
		case name == "sort_keys":
			s.sorted = arg.Bool()
		case name == "separators" && arg.Len() == 2:
			s.itemSep, s.keySep = arg.Index(0).String(), arg.Index(1).String()
		default:
			return exec.AsValue(fmt.Errorf("tojson has no argument %q", name))
		}
	}
	if order, ok := e.Environment.Context.Get(orderKey); ok {
		s.order, _ = order.(keyOrder)
	}
	var b strings.Builder
	var value any
	if !in.IsNil() {
		value = in.Interface()
		switch value.(type) {
		case map[string]any, []any, string, bool, int, float64:
		default:
			value = in.ToGoSimpleType(false)
			if err, ok := value.(error); ok {
				return exec.AsValue(fmt.Errorf("tojson: %w", err))
			}
		}
	}
	if err := s.write(&b, value, 0); err != nil {
		return exec.AsValue(err)
	}
	return exec.AsSafeValue(b.String())
}

// generation is {% generation %}, which marks what training should learn and prints its body.
type generation struct {
	at   *tokens.Token
	body *nodes.Wrapper
}

func (g *generation) Position() *tokens.Token { return g.at }
func (g *generation) String() string          { return "generation" }
func (g *generation) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.Inherit().ExecuteWrapper(g.body)
}

func parseGeneration(p *parser.Parser, args *parser.Parser) (nodes.ControlStructure, error) {
	g := &generation{at: p.Current()}
	body, end, err := p.WrapUntil("endgeneration")
	if err != nil {
		return nil, err
	}
	if !args.End() || !end.End() {
		return nil, errors.New("generation takes no arguments")
	}
	g.body = body
	return g, nil
}

// strftime writes a time in the directives that templates use.
func strftime(t time.Time, format string) string {
	layouts := map[byte]string{'Y': "2006", 'm': "01", 'd': "02", 'B': "January", 'b': "Jan", 'A': "Monday", 'a': "Mon",
		'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'y': "06", 'j': "002", '%': "%"}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		if layout, ok := layouts[format[i]]; ok {
			b.WriteString(t.Format(layout))
		} else {
			b.WriteString(format[i-1 : i+1])
		}
	}
	return b.String()
}
