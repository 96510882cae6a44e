package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/examples/internal/bundled"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/prompts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func raws(objects ...string) []json.RawMessage {
	var list []json.RawMessage
	for _, o := range objects {
		list = append(list, json.RawMessage(o))
	}
	return list
}

func render(t *testing.T, source string, in Input) (string, error) {
	t.Helper()
	p, err := Parse(source, "<s>", "</s>")
	require.NoError(t, err)
	p.now = func() time.Time { return time.Date(2026, 3, 7, 1, 2, 3, 0, time.UTC) }
	return p.Render(in)
}

// The bundled model's template gives the form that its prompts were made in.
func TestBundledTemplate(t *testing.T) {
	folder, err := checkpoint.OpenFS(bundled.FS(), bundled.Name)
	require.NoError(t, err)
	defer folder.Close()
	source, err := folder.ChatTemplate()
	require.NoError(t, err)
	got, err := render(t, source, Input{Messages: raws(`{"role":"user","content":"Hello, wörld\n"}`), AddGenerationPrompt: true})
	require.NoError(t, err)
	require.Equal(t, prompts.Chat("Hello, wörld\n"), got)
}

func TestLanguage(t *testing.T) {
	two := Input{Messages: raws(`{"role":"system","content":"S"}`, `{"role":"user","content":"U"}`)}
	for _, c := range []struct{ source, want string }{
		{"{% for m in messages %}\n  {{ m.role }}\n{% endfor %}", "  system\n  user\n"}, // blocks take their line with them
		{"{{ bos_token }}{{ eos_token }}", "<s></s>"},
		{"{% for m in messages[::-1] %}{{ m['content'] }}{{ loop.index0 }}{% endfor %}", "U0S1"},
		{"{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "2"},
		{"{% if tools is defined and tools %}T{% else %}-{% endif %}", "-"},
		{"{% generation %}{{ messages[0].content }}{% endgeneration %}", "S"},
		{"{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(5, 1, -2) %}{{ i }}{% endfor %}", "01253"},
		{"{{ strftime_now('%d %b %Y') }}", "07 Mar 2026"},
		{"{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ m.role }}{% endfor %}", "system"},
		{"{{ messages[0].content.startswith('S') and 'a' or 'b' }}", "a"},
		{"{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f('y') }}", "[y]"},
		{"{{ messages[1].missing is defined }}", "False"},
	} {
		got, err := render(t, c.source, two)
		require.NoError(t, err, c.source)
		require.Equal(t, c.want, got, c.source)
	}
}

// Python's json.dumps, keys in the order of the client.
func TestToJSON(t *testing.T) {
	tool := `{"type":"function","function":{"name":"f<x>","a":{"z":1,"b":[1.5,2.0,null,true],"é":"\u0001\"\\"}, "empty":{}}}`
	in := Input{Messages: raws(`{"role":"user","content":"x"}`), Tools: raws(tool)}
	got, err := render(t, "{{ tools[0] | tojson }}", in)
	require.NoError(t, err)
	require.Equal(t, `{"type": "function", "function": {"name": "f<x>", "a": {"z": 1, "b": [1.5, 2.0, null, true], "é": "\u0001\"\\"}, "empty": {}}}`, got)

	got, err = render(t, "{% for t in tools %}{{ t.function.a | tojson(indent=2) }}{% endfor %}", in)
	require.NoError(t, err)
	require.Equal(t, "{\n  \"z\": 1,\n  \"b\": [\n    1.5,\n    2.0,\n    null,\n    true\n  ],\n  \"é\": \"\\u0001\\\"\\\\\"\n}", got)

	got, err = render(t, "{{ tools[0].function.a['é'] | tojson }}{{ messages | tojson }}", in)
	require.NoError(t, err)
	require.Equal(t, `"\u0001\"\\"[{"role": "user", "content": "x"}]`, got)
}

func TestExtra(t *testing.T) {
	in := Input{Messages: raws(`{"role":"user","content":"x"}`), Extra: map[string]json.RawMessage{"enable_thinking": []byte("false")}}
	got, err := render(t, "{% if enable_thinking is defined and not enable_thinking %}no{% endif %}", in)
	require.NoError(t, err)
	require.Equal(t, "no", got)
	in.Extra = map[string]json.RawMessage{"messages": []byte("[]")}
	_, err = render(t, "", in)
	require.ErrorIs(t, err, ErrRender)
}

// A template reads no file, and what it may not do is an error, never a crash or a hang.
func TestConfined(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("SECRET"), 0o600))
	for _, source := range []string{
		"{% include '" + secret + "' %}", "{% import '" + secret + "' as x %}", "{% extends '" + secret + "' %}",
		"{% from '" + secret + "' import x %}", "{% for %}", "{{ 1 +", "{% nonsense %}",
	} {
		_, err := Parse(source, "", "")
		require.Error(t, err, source)
		require.NotContains(t, err.Error(), "SECRET")
	}
	for source, text := range map[string]string{
		"{{ raise_exception('roles must alternate') }}":                                                                  "roles must alternate",
		"{% for i in range(100000000) %}x{% endfor %}":                                                                   "range of more than 65536",
		"{% for i in range(65000) %}{% for j in range(65000) %}" + strings.Repeat("y", 999) + "{% endfor %}{% endfor %}": "bytes",
	} {
		_, err := render(t, source, Input{Messages: raws(`{"role":"user","content":null}`)})
		require.ErrorIs(t, err, ErrRender, source)
		require.ErrorContains(t, err, text)
		require.NotContains(t, err.Error(), raiseMark)
	}
	_, err := render(t, "", Input{Messages: raws(`"text"`)})
	require.ErrorContains(t, err, "message 0 is not a JSON object")
}

func TestMentions(t *testing.T) {
	for source, want := range map[string]bool{"{% if tools %}": true, "tools": true, "{{ my_tools }}{{ toolset }}": false, "{{tools|tojson}}": true,
		"{{ xtools }}{% for t in tools%}": true, "": false} {
		require.Equal(t, want, (&Template{source: source}).Mentions("tools"), source)
	}
}

// JSON that is nested deep would grow with the square of its length where a template indents it.
func TestDepth(t *testing.T) {
	deep := func(n int) string {
		return `{"role":"user","content":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
	}
	_, err := render(t, "{{ messages | tojson(indent=16) }}", Input{Messages: raws(deep(60))})
	require.NoError(t, err)
	_, err = render(t, "{{ messages | tojson(indent=16) }}", Input{Messages: raws(deep(9000))})
	require.ErrorIs(t, err, ErrRender)
	require.ErrorContains(t, err, "nested")
}

func TestConcurrent(t *testing.T) {
	p, err := Parse("{% set ns = namespace(s='') %}{% for m in messages %}{% set ns.s = ns.s + m.content %}{% endfor %}{{ ns.s }}", "", "")
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			word := strings.Repeat("ab", i+1)
			for range 50 {
				got, err := p.Render(Input{Messages: raws(`{"role":"user","content":"` + word + `"}`)})
				if err != nil || got != word {
					t.Errorf("%q, %v; want %q", got, err, word)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzRender(f *testing.F) {
	f.Add("{% for m in messages %}{{ m.content | tojson }}{% endfor %}", `{"role":"user","content":[1,{"a":null}]}`)
	f.Add("{%- if messages[0]['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}", `{"role":"system"}`)
	f.Fuzz(func(t *testing.T, source, message string) {
		if len(source) > 1<<10 || strings.Contains(source, "macro") || strings.Count(source, "for") > 3 || strings.Contains(source, "*") {
			return // recursion and products of a text have no bound but the operator's care
		}
		p, err := Parse(source, "", "")
		if err != nil {
			return
		}
		_, _ = p.Render(Input{Messages: raws(message)})
	})
}
