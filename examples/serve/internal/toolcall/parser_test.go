package toolcall

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func whole(text string) (string, []Call) {
	var p Parser
	content, calls := p.Push(text)
	rest, more := p.Flush()
	return content + rest, append(calls, more...)
}

func call(body string) string { return "<tool_call>\n" + body + "\n</tool_call>" }

var cases = []struct {
	text, content string
	calls         []Call
}{
	{"Hello", "Hello", nil},
	{"", "", nil},
	{"  \n ", "  \n ", nil},
	{"a < b <tool", "a < b <tool", nil},
	{call(`{"name": "f", "arguments": {"x": 1}}`), "", []Call{{"f", `{"x": 1}`}}},
	{"Let me look.\n\n" + call(`{"name": "f", "arguments": {}}`) + "\n", "Let me look.", []Call{{"f", "{}"}}},
	{call(`{"arguments": {"b": [1, "é"]}, "name": "f"}`) + "\n" + call(`{"name": "g"}`), "", []Call{{"f", `{"b": [1, "é"]}`}, {"g", "{}"}}},
	{" \n" + call(`{"name": "f", "arguments": null}`) + "\n Done. ", "Done. ", []Call{{"f", "{}"}}},
	// The object as a string, an end tag within a string, and quotes in strings.
	{call(`{"name": "f", "arguments": "{\"x\": 2}"}`), "", []Call{{"f", `{"x": 2}`}}},
	{call(`{"name": "f", "arguments": {"html": "</tool_call> \" </tool_call>"}}`) + "!", "!", []Call{{"f", `{"html": "</tool_call> \" </tool_call>"}`}}},
	// The last end tag is missing.
	{"x <tool_call>" + `{"name": "f", "arguments": {"x": 1}}` + "\n", "x", []Call{{"f", `{"x": 1}`}}},
	// No calls: they stay as they are.
	{call(`{"name": "f", "arguments": {"x": }}`) + " ok", call(`{"name": "f", "arguments": {"x": }}`) + " ok", nil},
	{call(`{"name": 5}`), call(`{"name": 5}`), nil},
	{call(`{"Name": "f"}`), call(`{"Name": "f"}`), nil},
	{call(`{"name": "f", "arguments": [1]}`), call(`{"name": "f", "arguments": [1]}`), nil},
	{call(`{"name": "f", "arguments": "x"}`), call(`{"name": "f", "arguments": "x"}`), nil},
	{call(`{"name": "f"} and more`), call(`{"name": "f"} and more`), nil},
	{call(""), call(""), nil},
	{`<tool_call>{"name": "f", "argum`, `<tool_call>{"name": "f", "argum`, nil},
	{"<tool_call>", "<tool_call>", nil},
	{"</tool_call> a", "</tool_call> a", nil},
	{"a\n\n" + call(`{`) + " b ", "a\n\n" + call(`{`) + " b ", nil},
	{" <tool_call> ", " <tool_call> ", nil},
	{call(`{"name": "g"}`) + " \n<tool_call>", "<tool_call>", []Call{{"g", "{}"}}},
	// A bad call does not take a good one with it.
	{call(`{"name": "f", "arguments": {`) + "\n" + call(`{"name": "g"}`), call(`{"name": "f", "arguments": {`), []Call{{"g", "{}"}}},
	{call(`{"name": "f`) + "\n" + call(`{"name": "g"}`), call(`{"name": "f`), []Call{{"g", "{}"}}},
	{"<tool_call><tool_call>" + `{"name": "g"}` + "</tool_call>", "<tool_call><tool_call>" + `{"name": "g"}` + "</tool_call>", nil},
}

func TestCalls(t *testing.T) {
	for _, c := range cases {
		content, calls := whole(c.text)
		require.Equal(t, c.content, content, c.text)
		require.Equal(t, c.calls, calls, c.text)
	}
}

// However the text is cut, content and calls are the same, and what was given out is never taken back.
func TestCuts(t *testing.T) {
	for _, c := range cases {
		for seed := range uint64(200) {
			rng := rand.New(rand.NewPCG(seed, 5))
			var p Parser
			var content strings.Builder
			var calls []Call
			for rest := c.text; rest != ""; {
				n := min(1+rng.IntN(1+int(seed%9)), len(rest))
				text, found := p.Push(rest[:n])
				content.WriteString(text)
				calls = append(calls, found...)
				require.True(t, strings.HasPrefix(c.content, content.String()), "%q of %q", content.String(), c.text)
				rest = rest[n:]
			}
			text, found := p.Flush()
			require.Equal(t, c.content, content.String()+text, "%q, seed %d", c.text, seed)
			require.Equal(t, c.calls, append(calls, found...), "%q, seed %d", c.text, seed)
		}
	}
}

// A call comes out with its end tag, not later.
func TestPromptly(t *testing.T) {
	var p Parser
	content, calls := p.Push("Yes. <tool_call>")
	require.Equal(t, "Yes.", content)
	require.Empty(t, calls)
	_, calls = p.Push(`{"name":"f"}</tool_call`)
	require.Empty(t, calls)
	_, calls = p.Push(">")
	require.Len(t, calls, 1)
}

func FuzzParser(f *testing.F) {
	for _, c := range cases {
		f.Add(c.text, uint64(3))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		content, calls := whole(text)
		for _, c := range calls {
			var object map[string]any
			if c.Name == "" || json.Unmarshal([]byte(c.Arguments), &object) != nil {
				t.Fatalf("%+v", c)
			}
		}
		if len(calls) == 0 && content != text {
			t.Fatalf("%q became %q", text, content)
		}
		rng := rand.New(rand.NewPCG(seed, 5))
		var p Parser
		got, n := "", 0
		for rest := text; rest != ""; {
			k := 1 + rng.IntN(len(rest))
			piece, found := p.Push(rest[:k])
			got, n, rest = got+piece, n+len(found), rest[k:]
		}
		piece, found := p.Flush()
		if got+piece != content || n+len(found) != len(calls) {
			t.Fatalf("%q: in pieces %q and %d calls, whole %q and %d", text, got+piece, n+len(found), content, len(calls))
		}
	})
}
