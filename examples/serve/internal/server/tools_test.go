package server

import (
	"encoding/json"
	"flag"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/examples/internal/chat"
	"github.com/weftgo/weft/examples/internal/deploy"
)

// A template that shows tools and calls as Qwen's do.
const toolTemplate = `{%- if tools %}{{- '<|im_start|>system\n<tools>' }}{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}{{- '\n</tools><|im_end|>\n' }}{%- endif %}
{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' + message.content }}
{%- if message.tool_calls %}{%- for call in message.tool_calls %}{%- set call = call.function %}{{- '\n<tool_call>\n{"name": "' }}{{- call.name }}{{- '", "arguments": ' }}
{%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}{{- '}\n</tool_call>' }}{%- endfor %}{%- endif %}
{{- '<|im_end|>\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}`

type calling struct {
	Choices []struct {
		Message, Delta struct {
			Role    *string
			Content *string
			Calls   []struct {
				Index    *int
				ID, Type string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		Reason   *string `json:"finish_reason"`
		Logprobs *struct{ Content []struct{ Token string } }
	}
	Usage *struct {
		Completion int `json:"completion_tokens"`
	}
}

func (r *rig) call(body object) (c calling, raw string) {
	r.t.Helper()
	resp := r.post("/v1/chat/completions", body)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	require.Equal(r.t, 200, resp.StatusCode, string(text))
	require.NoError(r.t, json.Unmarshal(text, &c))
	return c, string(text)
}

// callStream returns the events of a stream.
func (r *rig) callStream(body object) (events []calling) {
	r.t.Helper()
	resp := r.post("/v1/chat/completions", body)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	require.Equal(r.t, 200, resp.StatusCode, string(text))
	for _, line := range strings.Split(string(text), "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok && data != "[DONE]" {
			var c calling
			require.NoError(r.t, json.Unmarshal([]byte(data), &c), data)
			events = append(events, c)
		}
	}
	return events
}

// joined puts the chunks of a stream together.
func joined(t *testing.T, events []calling) (content, reason string, names, args []string) {
	for i, e := range events {
		d := e.Choices[0].Delta
		require.Equal(t, i == 0, d.Role != nil)
		require.Len(t, e.Choices[0].Logprobs.Content, 1)
		if d.Content != nil {
			content += *d.Content
		}
		for _, call := range d.Calls {
			require.Equal(t, len(names), *call.Index)
			names, args = append(names, call.Function.Name), append(args, call.Function.Arguments)
		}
		require.Equal(t, i == len(events)-1, e.Choices[0].Reason != nil)
		if e.Choices[0].Reason != nil {
			reason = *e.Choices[0].Reason
		}
	}
	return content, reason, names, args
}

func TestToolCalls(t *testing.T) {
	r, say := scripted(t, func(_ *deploy.Config, c *Config) {
		var err error
		c.Template, err = chat.Parse(toolTemplate, "", "<|im_end|>")
		require.NoError(t, err)
	})
	const two = "Let me look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Kyōto\", \"days\": 2}}\n</tool_call>\n" +
		"<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>"
	bad := "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\"}}\n</tool_call>"
	tools := []object{{"type": "function", "function": object{"name": "weather", "parameters": object{"type": "object"}}}}
	type want struct {
		content *string
		names   []string
		args    []string
		reason  string
	}
	for name, c := range map[string]struct {
		text string
		more object
		want want
	}{
		"two calls":   {two, nil, want{new("Let me look."), []string{"weather", "clock"}, []string{`{"city": "Kyōto", "days": 2}`, "{}"}, "tool_calls"}},
		"auto":        {two, object{"tool_choice": "auto"}, want{new("Let me look."), []string{"weather", "clock"}, []string{`{"city": "Kyōto", "days": 2}`, "{}"}, "tool_calls"}},
		"the first":   {two, object{"parallel_tool_calls": false}, want{new("Let me look."), []string{"weather"}, []string{`{"city": "Kyōto", "days": 2}`}, "tool_calls"}},
		"only a call": {two[strings.Index(two, "<tool_call>\n{\"name\": \"clock"):], nil, want{nil, []string{"clock"}, []string{"{}"}, "tool_calls"}},
		"none":        {two, object{"tool_choice": "none"}, want{new(two), nil, nil, "stop"}},
		"no call":     {"Hello there.", nil, want{new("Hello there."), nil, nil, "stop"}},
		"malformed":   {bad, nil, want{new(bad), nil, nil, "stop"}},
		"cut off":     {two, object{"max_tokens": 12}, want{nil, nil, nil, "length"}},
	} {
		t.Run(name, func(t *testing.T) {
			ids := say(c.text)
			body := object{"messages": []object{{"role": "user", "content": "Weather?"}}, "tools": tools, "temperature": 0, "logprobs": true}
			for k, v := range c.more {
				body[k] = v
			}
			whole, raw := r.call(body)
			m := whole.Choices[0].Message
			var names, args []string
			for _, call := range m.Calls {
				require.Nil(t, call.Index)
				require.Regexp(t, "^call_[A-Z0-9]+$", call.ID)
				require.Equal(t, "function", call.Type)
				names, args = append(names, call.Function.Name), append(args, call.Function.Arguments)
			}
			require.Equal(t, c.want.reason, *whole.Choices[0].Reason)
			require.Equal(t, c.want.names, names)
			require.Equal(t, c.want.args, args)
			if name != "cut off" {
				require.Equal(t, c.want.content, m.Content)
				require.Len(t, whole.Choices[0].Logprobs.Content, len(ids)+1, "every token, those of calls too")
			}
			require.Contains(t, raw, `"content":`)

			body["stream"] = true
			events := r.callStream(body)
			require.Len(t, events, whole.Usage.Completion, "a chunk for each token")
			content, reason, names, args := joined(t, events)
			require.Equal(t, c.want.names, names)
			require.Equal(t, c.want.args, args)
			require.Equal(t, c.want.reason, reason)
			if m.Content == nil {
				require.Empty(t, content)
			} else {
				require.Equal(t, *m.Content, content)
			}
		})
	}
}

var update = flag.Bool("update", false, "write testdata/toolcall.sse")

// The bytes of a stream with a call, which clienttest gives to OpenAI's client.
func TestToolStreamFile(t *testing.T) {
	r, say := scripted(t, func(_ *deploy.Config, c *Config) {
		var err error
		c.Template, err = chat.Parse(toolTemplate, "", "<|im_end|>")
		require.NoError(t, err)
	})
	say("Let me look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Kyoto\"}}\n</tool_call>")
	resp := r.post("/v1/chat/completions", object{"messages": []object{{"role": "user", "content": "Weather?"}}, "temperature": 0, "stream": true,
		"stream_options": object{"include_usage": true}, "tools": []object{{"type": "function", "function": object{"name": "weather"}}}})
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	for pattern, plain := range map[string]string{`chatcmpl-[A-Z0-9]+`: "chatcmpl-1", `call_[A-Z0-9]+`: "call_1", `"created":[0-9]+`: `"created":1`} {
		text = regexp.MustCompile(pattern).ReplaceAll(text, []byte(plain))
	}
	if *update {
		require.NoError(t, os.WriteFile("testdata/toolcall.sse", text, 0o644))
	}
	want, err := os.ReadFile("testdata/toolcall.sse")
	require.NoError(t, err)
	require.Equal(t, string(want), string(text), "if this is meant: go test ./examples/serve/internal/server -run ToolStreamFile -update")
}

// Tools and the history of calls reach the model through the template, and a template without a place for tools refuses them.
func TestToolsInPrompts(t *testing.T) {
	r := start(t, "tp1", func(_ *deploy.Config, c *Config) {
		var err error
		c.Template, err = chat.Parse(toolTemplate, "", "<|im_end|>")
		require.NoError(t, err)
	})
	body := object{"tools": []object{{"type": "function", "function": object{"name": "clock"}}}, "max_tokens": 1, "return_token_ids": true, "messages": []any{
		object{"role": "user", "content": "Time?"},
		json.RawMessage(`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"clock","arguments":"{\"zone\":\"CET\"}"}}]}`),
		object{"role": "tool", "tool_call_id": "c", "content": "noon"}}}
	a := r.ok("/v1/chat/completions", body)
	var whole struct {
		IDs []int32 `json:"prompt_token_ids"`
	}
	resp := r.post("/v1/chat/completions", body)
	defer resp.Body.Close()
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&whole))
	require.Len(t, whole.IDs, a.Usage.Prompt)
	require.Equal(t, "<|im_start|>system\n<tools>\n"+`{"function": {"name": "clock"}, "type": "function"}`+"\n</tools><|im_end|>\n"+
		"<|im_start|>user\nTime?<|im_end|>\n<|im_start|>assistant\n\n<tool_call>\n"+`{"name": "clock", "arguments": {"zone": "CET"}}`+
		"\n</tool_call><|im_end|>\n<|im_start|>tool\nnoon<|im_end|>\n<|im_start|>assistant\n", r.s.cfg.Tokenizer.Decode(whole.IDs, false))

	plain := start(t, "tp1")
	require.Contains(t, plain.refused("/v1/chat/completions", 400, body), "no place for tools")
	body["tool_choice"] = "none"
	plain.ok("/v1/chat/completions", body)
}
