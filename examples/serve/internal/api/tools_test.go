package api

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

const tool = `"tools":[{"type":"function","function":{"name":"f","parameters":{}}}]`

func TestTools(t *testing.T) {
	parse := func(members string) (*Completion, *Error) {
		return ParseChat([]byte(`{"messages":[{"role":"user","content":"x"}],`+members+`}`), limits)
	}
	for members, find := range map[string]bool{
		tool: true, tool + `,"tool_choice":"auto"`: true, tool + `,"tool_choice":null`: true, tool + `,"tool_choice":"none"`: false,
		`"tools":[]`: false, `"tools":null`: false, `"tool_choice":"none"`: false, tool + `,"parallel_tool_calls":false`: true,
	} {
		c, err := parse(members)
		require.Nil(t, err, members)
		require.Equal(t, find, c.Chat.FindCalls, members)
		require.Empty(t, c.Unknown)
	}
	c, _ := parse(tool + `,"parallel_tool_calls":false`)
	require.True(t, c.Chat.OneCall)
	for members, text := range map[string]string{
		tool + `,"tool_choice":"required"`: "required", tool + `,"tool_choice":{"type":"function","function":{"name":"f"}}`: "not supported",
		`"tool_choice":"auto"`: "needs tools", `"tools":{}`: "list", `"tools":[1]`: "tool 0", `"tools":[{"type":"retrieval"}]`: "tool 0",
		`"tools":[{"type":"function","function":{}}]`: "tool 0", `"tools":[null]`: "tool 0", tool + `,"parallel_tool_calls":1`: "true or false",
		`"functions":[{"name":"f"}]`: "functions", `"function_call":"auto"`: "function_call",
	} {
		_, err := parse(members)
		require.NotNil(t, err, members)
		require.Equal(t, 400, err.Status)
		require.Contains(t, err.Message, text, members)
	}
}

// Names of members count to the letter: what a template would not see does not make a message, a part, a tool or a call.
func TestNamesToTheLetter(t *testing.T) {
	for body, text := range map[string]string{
		`{"messages":[{"Role":"user","content":"x"}]}`:                                                            "role",
		`{"messages":[{"role":"alien","Role":"user","content":"x"}]}`:                                             "role",
		`{"messages":[{"role":"user","CONTENT":"x"}]}`:                                                            "no content",
		`{"messages":[{"role":"user","content":[{"type":"image_url"}],"Content":"x"}]}`:                           "only text",
		`{"messages":[{"role":"user","content":[{"Type":"text","text":"x"}]}]}`:                                   "only text",
		`{"messages":[{"role":"user","content":[{"type":"text","TEXT":"x"}]}]}`:                                   "only text",
		`{"messages":[{"role":"user","content":[5]}]}`:                                                            "no object",
		`{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","Function":{"name":"f"}}]}`:      "tool 0",
		`{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"Name":"f"}}]}`:      "tool 0",
		`{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":"f"}]}`:               "tool 0",
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"NAME":"f"}}]}]}`:                            "tool call 0",
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"null"}}]}]}`:         "arguments",
		`{"Messages":[{"role":"user","content":"x"}]}`:                                                            "messages",
		`{"messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"Include_Usage":true}}`:      "stream_options",
		`{"messages":[{"role":5,"content":"x"}]}`:                                                                 "role",
		`{"messages":[{"role":"user","content":[{"type":"text","text":5}]}]}`:                                     "only text",
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}","name":""}}]}]}`: "tool call 0",
	} {
		_, err := ParseChat([]byte(body), limits)
		require.NotNil(t, err, body)
		require.Equal(t, 400, err.Status)
		require.Contains(t, err.Message, text, body)
	}
}

// Arguments of earlier calls come as text and reach the template as objects, with everything else in its order.
func TestToolHistory(t *testing.T) {
	message := func(arguments string) string {
		return `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":` + arguments + `}}]}`
	}
	for arguments, want := range map[string]string{`"{\"b\":1, \"a\":\"é\"}"`: `{"b":1,"a":"é"}`, `{"x":[1]}`: `{"x":[1]}`, `""`: `{}`, `null`: `{}`, `" {} "`: `{}`} {
		c, err := ParseChat([]byte(`{"messages":[`+message(arguments)+`,{"role":"tool","tool_call_id":"c1","content":"sunny"}]}`), limits)
		require.Nil(t, err, arguments)
		require.Equal(t, `{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":`+want+`}}]}`,
			string(compact(t, c.Chat.Messages[0])))
	}
	for _, arguments := range []string{`"{"`, `"[1]"`, `5`, `"x"`, `[]`} {
		_, err := ParseChat([]byte(`{"messages":[`+message(arguments)+`]}`), limits)
		require.NotNil(t, err, arguments)
		require.Contains(t, err.Message, "arguments")
	}
	for _, calls := range []string{`5`, `[5]`, `[{}]`, `[{"function":{"name":""}}]`, `{}`} {
		_, err := ParseChat([]byte(`{"messages":[{"role":"assistant","tool_calls":`+calls+`}]}`), limits)
		require.NotNil(t, err, calls)
		require.Contains(t, err.Message, "tool")
	}
}

func compact(t *testing.T, raw json.RawMessage) []byte {
	out, err := json.Marshal(raw) // compacts
	require.NoError(t, err)
	return out
}
