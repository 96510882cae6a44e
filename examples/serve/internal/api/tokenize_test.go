package api

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTokenize(t *testing.T) {
	q, err := ParseTokenize([]byte(`{"model":"alias","prompt":"x","return_token_strs":true,"add_special_tokens":false,"frobnicate":1}`), limits)
	require.Nil(t, err)
	require.Equal(t, &Tokenize{Prompt: "x", TokenStrings: true, Unknown: []string{"frobnicate"}}, q)
	q, err = ParseTokenize([]byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],`+tool+`,"add_generation_prompt":false}`), limits)
	require.Nil(t, err)
	require.JSONEq(t, `{"role":"user","content":"a\nb"}`, string(q.Chat.Messages[0]))
	require.Len(t, q.Chat.Tools, 1)
	require.False(t, q.Chat.AddGenerationPrompt)
	for body, text := range map[string]string{
		`{}`: "no prompt", `[]`: "object", `{"prompt":1}`: "string", `{"prompt":"x","messages":[]}`: "one of them", `{"messages":[]}`: "messages",
		`{"prompt":"x","return_token_strs":1}`: "true or false", `{"messages":[{"role":"x"}]}`: "role", `{"prompt":"x","chat_template":"y"}`: "chat_template",
		`{"prompt":"x"}{}`: "more than one", `{"prompt":"x","model":5}`: "model",
	} {
		_, err := ParseTokenize([]byte(body), limits)
		require.NotNil(t, err, body)
		require.Equal(t, 400, err.Status)
		require.Contains(t, err.Message, text, body)
	}
	_, err = ParseTokenize([]byte(`{"prompt":"x","model":"other"}`), limits)
	require.Equal(t, 404, err.Status)

	d, err := ParseDetokenize([]byte(`{"tokens":[1,99]}`), limits)
	require.Nil(t, err)
	require.Equal(t, []int32{1, 99}, d.Tokens)
	for body, text := range map[string]string{`{}`: "no tokens", `{"tokens":[100]}`: "[0, 100)", `{"tokens":[-1]}`: "[0, 100)", `{"tokens":[null]}`: "ids",
		`{"tokens":[1.5]}`: "ids", `{"tokens":"x"}`: "ids", `null`: "null"} {
		_, err := ParseDetokenize([]byte(body), limits)
		require.NotNil(t, err, body)
		require.Contains(t, err.Message, text, body)
	}
}
