package api

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/examples/internal/sampling"
)

var limits = Limits{Models: []string{"m", "alias"}, VocabSize: 100, MaxLogprobs: 20, MaxPrompts: 4, MaxChoices: 8, MaxModelLen: 1 << 20, Text: true}

func TestDefaults(t *testing.T) {
	for _, body := range []string{`{"prompt":"x"}`,
		`{"prompt":"x","max_tokens":null,"stop":null,"seed":null,"logprobs":null,"n":null,"suffix":null,"stream":null,"logit_bias":null,"echo":null}`} {
		c, err := ParseCompletion([]byte(body), limits)
		require.Nil(t, err)
		require.Equal(t, &Completion{Prompts: []Prompt{{Text: "x"}}, MaxTokens: 16, N: 1, Logprobs: -1, PromptLogprobs: -1,
			Sampling: sampling.Params{Temperature: 1, TopP: 1, RepetitionPenalty: 1}}, c)
	}
}

func TestPrompts(t *testing.T) {
	for body, want := range map[string][]Prompt{
		`"a"`:           {{Text: "a"}},
		`["a", "b"]`:    {{Text: "a"}, {Text: "b"}},
		`[1, 2]`:        {{IDs: []int32{1, 2}, IsIDs: true}},
		`[[1], [2, 3]]`: {{IDs: []int32{1}, IsIDs: true}, {IDs: []int32{2, 3}, IsIDs: true}},
	} {
		c, err := ParseCompletion([]byte(`{"prompt":`+body+`}`), limits)
		require.Nil(t, err, body)
		require.Equal(t, want, c.Prompts, body)
	}
}

// I-56 (best_of), I-57 (n = 0, options that nobody honours), and the types of section 6.1: 400 that names the field.
func TestRefused(t *testing.T) {
	for members, text := range map[string]string{
		`"prompt":""`: "empty", `"prompt":[]`: "empty", `"prompt":[[]]`: "empty", `"prompt":["a",1]`: "not a string",
		`"prompt":[1,"a"]`: "not a list of token ids", `"prompt":[1.5]`: "token ids", `"prompt":[null]`: "token ids", `"prompt":[100]`: "[0, 100)",
		`"prompt":[-1]`: "[0, 100)", `"prompt":{}`: "prompt must be", `"prompt":["a","b","c","d","e"]`: "at most 4", `"prompt":null`: "no prompt",
		`"prompt":["a","b","c"],"n":3`: "8 choices",

		`"n":8,"max_tokens":1000000,"logprobs":5`: "log-probabilities", `"n":8,"max_tokens":9999999,"logprobs":5`: "1048576 tokens",
		`"n":0`: "[1, 8]", `"n":-1`: "[1, 8]", `"n":1.0`: "whole number", `"n":true`: "whole number", `"n":"1"`: "whole number",
		`"best_of":2`: "best_of", `"n":3,"best_of":2`: "best_of",
		`"logprobs":21`: "[0, 20]", `"logprobs":true`: "whole number", `"logprobs":1.0`: "whole number", `"logprobs":-1`: "[0, 20]",
		`"prompt_logprobs":1,"stream":true`: "prompt_logprobs",
		`"max_tokens":0`:                    "echo", `"max_tokens":-1`: "max_tokens", `"min_tokens":17`: "max_tokens 16",
		`"temperature":-1`: "temperature", `"temperature":"hot"`: "temperature", `"temperature":1e300`: "temperature",
		`"top_p":0`: "top_p", `"top_p":1.1`: "top_p", `"top_k":-2`: "top_k", `"min_p":2`: "min_p", `"repetition_penalty":0`: "repetition_penalty",
		`"presence_penalty":2.5`: "presence_penalty", `"frequency_penalty":-3`: "frequency_penalty", `"seed":1.5`: "seed", `"seed":9223372036854775808`: "seed",
		`"logit_bias":{"100":1}`: "logit_bias", `"logit_bias":{"x":1}`: "logit_bias", `"logit_bias":{"1":101}`: "logit_bias", `"logit_bias":[1]`: "logit_bias",
		`"stop":[1]`: "stop", `"stop":[""]`: "stop", `"stop":[null]`: "stop", `"stop_token_ids":[100]`: "stop_token_ids", `"stop_token_ids":"x"`: "stop_token_ids",
		`"stream_options":{"include_usage":true}`: "stream: true", `"stream":true,"stream_options":{"usage":1}`: "no",
		`"stream":true,"stream_options":{"include_usage":1}`: "include_usage", `"stream":1`: "stream",
		`"suffix":"x"`: "suffix", `"use_beam_search":true`: "use_beam_search", `"response_format":{"type":"json_object"}`: "response_format",
		`"guided_json":{}`: "guided_json", `"structured_outputs":{"regex":"a"}`: "structured_outputs", `"bad_words":["a"]`: "bad_words",
		`"allowed_token_ids":[1]`: "allowed_token_ids", `"prompt_embeds":"AA"`: "prompt_embeds", `"logits_processors":["x"]`: "logits_processors",
		`"echo":"yes"`: "echo", `"model":1`: "model", `"truncate_prompt_tokens":-2`: "truncate_prompt_tokens",
	} {
		if !strings.Contains(members, `"prompt":`) {
			members = `"prompt":"x",` + members
		}
		_, err := ParseCompletion([]byte("{"+members+"}"), limits)
		require.NotNil(t, err, members)
		require.Equal(t, 400, err.Status, members)
		require.Contains(t, err.Message, text, members)
		require.NotEmpty(t, err.Param, members)
		require.Contains(t, members, `"`+err.Param+`"`, "the field to blame")
	}
	for body, text := range map[string]string{"": "empty", "[]": "object", "null": "null", `{"prompt":"x"} {}`: "more than one", `{"prompt":`: "JSON"} {
		_, err := ParseCompletion([]byte(body), limits)
		require.NotNil(t, err, body)
		require.Contains(t, err.Message, text, body)
	}
	_, err := ParseCompletion([]byte(`{"prompt":"x","suffix":"y"}`), limits)
	require.Equal(t, "suffix is not supported by this server; leave it out", err.Message)
	_, err = ParseCompletion([]byte(`{"prompt":"x","use_beam_search":true,"suffix":"y"}`), limits)
	require.Equal(t, "suffix, use_beam_search are not supported by this server; leave them out", err.Message)
	_, err = ParseCompletion([]byte(`{"prompt":"x","model":"other"}`), limits)
	require.Equal(t, 404, err.Status)
	require.Equal(t, "NotFoundError", err.Body().Error.Type)
}

// What clients send by habit and what asks for nothing is accepted; what is not known is listed.
func TestAccepted(t *testing.T) {
	c, err := ParseCompletion([]byte(`{"model":"alias","prompt":"x","n":2,"best_of":2,"suffix":"","use_beam_search":false,"response_format":{"type": "text"},
		"user":"u","priority":3,"session_id":"s","request_id":"r","cache_salt":"c","skip_special_tokens":false,"spaces_between_special_tokens":true,
		"add_special_tokens":true,"truncate_prompt_tokens":-1,"bad_words":[],"length_penalty":1.0,"frobnicate":1,"logit_bias":{"7":1,"3":-2},
		"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},"stop":"END","seed":-5,"top_k":-1}`), limits)
	require.Nil(t, err)
	require.Equal(t, []string{"frobnicate"}, c.Unknown)
	require.Equal(t, []sampling.Bias{{ID: 3, Value: -2}, {ID: 7, Value: 1}}, c.Sampling.LogitBias)
	require.Equal(t, int64(-5), *c.Sampling.Seed)
	require.Equal(t, []string{"END"}, c.Stop)
	require.True(t, c.KeepSpecial && c.IncludeUsage && c.ContinuousUsage)
	require.Equal(t, "c", c.CacheSalt)
	for _, body := range []string{`{"prompt":"x","max_tokens":0,"echo":true}`, `{"prompt":[1],"max_tokens":0,"prompt_logprobs":1}`} {
		c, err := ParseCompletion([]byte(body), limits)
		require.Nil(t, err)
		require.Zero(t, c.MaxTokens)
	}
}

func TestNoTokenizer(t *testing.T) {
	l := limits
	l.Text = false
	for _, body := range []string{`{"prompt":"x"}`, `{"prompt":["x"]}`, `{"prompt":[1],"stop":"x"}`} {
		_, err := ParseCompletion([]byte(body), l)
		require.NotNil(t, err, body)
		require.Contains(t, err.Message, "no tokenizer")
	}
	_, err := ParseChat([]byte(`{"messages":[{"role":"user","content":"x"}]}`), l)
	require.Contains(t, err.Message, "no tokenizer")
}

func TestChat(t *testing.T) {
	c, err := ParseChat([]byte(`{"messages":[{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b\""}]},{"role":"user","content":"x"},
		{"role":"assistant"}],"logprobs":true,"top_logprobs":3,"max_tokens":5,"max_completion_tokens":7,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none",
		"chat_template_kwargs":{"enable_thinking":false}}`), limits)
	require.Nil(t, err)
	require.Equal(t, 3, c.Logprobs)
	require.Equal(t, 7, c.MaxTokens)
	var contents []string
	for _, m := range c.Chat.Messages {
		var v struct{ Content string }
		require.NoError(t, json.Unmarshal(m, &v))
		contents = append(contents, v.Content)
	}
	require.Equal(t, []string{"a\nb\"", "x", ""}, contents)
	require.Len(t, c.Chat.Tools, 1)
	require.True(t, c.Chat.AddGenerationPrompt)
	require.False(t, c.Chat.FindCalls)

	for body, text := range map[string]string{
		`{}`: "messages", `{"messages":[]}`: "messages", `{"messages":[1]}`: "role", `{"messages":[{"role":"alien","content":"x"}]}`: "role",
		`{"messages":[{"role":"user"}]}`: "no content", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`: "only text",
		`{"messages":[{"role":"user","content":5}]}`: "string or a list", `{"messages":[{"role":"user","content":"x"}],"tools":[{}]}`: "tool 0",
		`{"messages":[{"role":"user","content":"x"}],"top_logprobs":1}`:       "logprobs: true",
		`{"messages":[{"role":"user","content":"x"}],"logprobs":1}`:           "true or false",
		`{"messages":[{"role":"user","content":"x"}],"chat_template":"{{}}"}`: "chat_template", `{"messages":[{"role":"user","content":"x"}],"max_tokens":0}`: "max_tokens",
	} {
		_, err := ParseChat([]byte(body), limits)
		require.NotNil(t, err, body)
		require.Contains(t, err.Message, text, body)
	}
}

// I-53: no infinity in JSON. Ties keep their order.
func TestLogprobJSON(t *testing.T) {
	for v, want := range map[float32]string{-0.5: "-0.5", 0: "0", float32(math.Inf(-1)): "-9999.0", -1e30: "-9999.0", -1e-8: "-0.00000001", -12.345678: "-12.345678"} {
		got, err := json.Marshal(Logprob(v))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	got, err := json.Marshal(Logprob(math.NaN()))
	require.NoError(t, err)
	require.Equal(t, "null", string(got))

	list := []Alternative{{ID: 9, Token: "z", Logprob: -1, Rank: 1}, {ID: 3, Token: "a", Logprob: -1, Rank: 2}, {ID: 4, Token: "z", Logprob: -2}}
	got, err = json.Marshal(Alternatives(list))
	require.NoError(t, err)
	require.Equal(t, `{"z":-1,"a":-1}`, string(got))
	got, err = json.Marshal(PromptLogprob(list))
	require.NoError(t, err)
	require.Equal(t, `{"9":{"logprob":-1,"rank":1,"decoded_token":"z"},"3":{"logprob":-1,"rank":2,"decoded_token":"a"},"4":{"logprob":-2,"rank":null,"decoded_token":"z"}}`, string(got))
}

func FuzzParse(f *testing.F) {
	f.Add(`{"prompt":[[1,2],[3]],"n":2,"logprobs":5,"echo":true,"stop":["a"],"stream":true,"stream_options":{"include_usage":true}}`)
	f.Add(`{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"logit_bias":{"1":2}}`)
	f.Add(`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"a\":1}"}}]}],"tools":[{"type":"function","function":{"name":"f"}}]}`)
	f.Add(`{"prompt":"x","seed":1e3,"best_of":null}`)
	f.Fuzz(func(t *testing.T, body string) {
		if q, err := ParseTokenize([]byte(body), limits); err == nil && q == nil {
			t.Fatal("no request and no error")
		}
		for _, parse := range []func([]byte, Limits) (*Completion, *Error){ParseCompletion, ParseChat} {
			c, err := parse([]byte(body), limits)
			if (c == nil) == (err == nil) {
				t.Fatalf("%v, %v", c, err)
			}
			if err != nil && (err.Status < 400 || err.Message == "") {
				t.Fatalf("%+v", err)
			}
			if c == nil {
				continue
			}
			if len(c.Prompts)*c.N < 1 || len(c.Prompts)*c.N > limits.MaxChoices {
				t.Fatalf("%d prompts, n %d", len(c.Prompts), c.N)
			}
			for _, p := range c.Prompts {
				if c.Chat == nil && p.Text == "" && len(p.IDs) == 0 {
					t.Fatal("empty prompt")
				}
			}
			if c.Chat != nil {
				for _, tool := range c.Chat.Tools {
					if !json.Valid(tool) {
						t.Fatalf("tool %s", tool)
					}
				}
				for _, m := range c.Chat.Messages {
					if !json.Valid(m) {
						t.Fatalf("message %s", m)
					}
				}
			}
		}
	})
}
