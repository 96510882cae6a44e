package clienttest

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"
	"github.com/stretchr/testify/require"
)

// serve builds the server and runs it; it must end in order at the end.
func serve(t *testing.T, args ...string) openai.Client {
	binary := filepath.Join(t.TempDir(), "serve")
	build := exec.Command("go", "build", "-o", binary, "./examples/serve")
	build.Dir = "../../.."
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	cmd := exec.Command(binary, append([]string{"--port", "0", "--api-key", "secret"}, args...)...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			t.Error("the server did not end after SIGTERM")
		}
	})
	line, err := bufio.NewReader(pipe).ReadString('\n')
	require.NoError(t, err)
	_, url, ok := strings.Cut(strings.TrimSpace(line), " on ")
	require.True(t, ok, line)
	return openai.NewClient(option.WithBaseURL(url+"/v1/"), option.WithAPIKey("secret"), option.WithMaxRetries(0))
}

// OpenAI's client puts a stream with a call of a function together. The bytes are the server's (its tests hold them); the bundled model
// writes no calls.
func TestToolStream(t *testing.T) {
	text, err := os.ReadFile("../internal/server/testdata/toolcall.sse")
	require.NoError(t, err)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(text)
	}))
	defer h.Close()
	c := openai.NewClient(option.WithBaseURL(h.URL), option.WithAPIKey("x"), option.WithMaxRetries(0))
	s := c.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("x")}})
	var all openai.ChatCompletionAccumulator
	finished := 0
	for s.Next() {
		require.True(t, all.AddChunk(s.Current()))
		if call, ok := all.JustFinishedToolCall(); ok {
			finished++
			require.Equal(t, "weather", call.Name)
		}
	}
	require.NoError(t, s.Err())
	m := all.Choices[0].Message
	require.Equal(t, "Let me look.", m.Content)
	require.Len(t, m.ToolCalls, 1)
	require.Equal(t, "call_1", m.ToolCalls[0].ID)
	require.Equal(t, "weather", m.ToolCalls[0].Function.Name)
	require.JSONEq(t, `{"city":"Kyoto"}`, m.ToolCalls[0].Function.Arguments)
	require.EqualValues(t, "tool_calls", all.Choices[0].FinishReason)
	require.Equal(t, 1, finished)
	require.Positive(t, all.Usage.CompletionTokens)
}

func TestOpenAI(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := serve(t, "--data-parallel-size", "2", "--enable-expert-parallel")
	models, err := c.Models.List(ctx)
	require.NoError(t, err)
	require.Len(t, models.Data, 1)
	model := models.Data[0].ID
	one, err := c.Models.Get(ctx, model)
	require.NoError(t, err)
	require.Equal(t, model, one.ID)

	t.Run("completion", func(t *testing.T) {
		got, err := c.Completions.New(ctx, openai.CompletionNewParams{
			Model: openai.CompletionNewParamsModel(model), Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Hello")},
			MaxTokens: openai.Int(4), Logprobs: openai.Int(3), Echo: openai.Bool(true), N: openai.Int(2), Seed: openai.Int(7), Temperature: openai.Float(0.8),
			LogitBias: map[string]int64{"2045": -100, "2047": -100}, // no end
			Stop:      openai.CompletionNewParamsStopUnion{OfStringArray: []string{"@@"}},
		})
		require.NoError(t, err)
		require.Len(t, got.Choices, 2)
		require.True(t, strings.HasPrefix(got.Choices[0].Text, "Hello"))
		require.Len(t, got.Choices[0].Logprobs.Tokens, int(got.Usage.PromptTokens)+4)
		require.EqualValues(t, "length", got.Choices[0].FinishReason)
	})
	t.Run("completion stream", func(t *testing.T) {
		s := c.Completions.NewStreaming(ctx, openai.CompletionNewParams{
			Model: openai.CompletionNewParamsModel(model), Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"Hello"}},
			MaxTokens: openai.Int(5), StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
		})
		chunks, usage := 0, int64(0)
		for s.Next() {
			if len(s.Current().Choices) == 0 {
				usage = s.Current().Usage.CompletionTokens
				continue
			}
			chunks++
		}
		require.NoError(t, s.Err())
		require.EqualValues(t, chunks, usage)
		require.Positive(t, chunks)
	})
	messages := []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("You judge."), openai.UserMessage("Hello")}
	chat := openai.ChatCompletionNewParams{Model: shared.ChatModel(model), Messages: messages, MaxCompletionTokens: openai.Int(6), Temperature: openai.Float(0),
		Logprobs: openai.Bool(true), TopLogprobs: openai.Int(2)}
	var text string
	t.Run("chat", func(t *testing.T) {
		got, err := c.Chat.Completions.New(ctx, chat)
		require.NoError(t, err)
		text = got.Choices[0].Message.Content
		require.NotEmpty(t, text)
		require.Len(t, got.Choices[0].Logprobs.Content, int(got.Usage.CompletionTokens))
		require.Len(t, got.Choices[0].Logprobs.Content[0].TopLogprobs, 2)
	})
	t.Run("chat stream", func(t *testing.T) {
		s := c.Chat.Completions.NewStreaming(ctx, chat)
		var all openai.ChatCompletionAccumulator
		for s.Next() {
			require.True(t, all.AddChunk(s.Current()))
		}
		require.NoError(t, s.Err())
		require.Equal(t, text, all.Choices[0].Message.Content)
	})
	t.Run("tools", func(t *testing.T) { // the bundled model's template has no place for them
		with := chat
		with.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "clock"})}
		_, err := c.Chat.Completions.New(ctx, with)
		var known *openai.Error
		require.True(t, errors.As(err, &known))
		require.Equal(t, 400, known.StatusCode)
		require.Equal(t, "tools", known.Param)
	})
	t.Run("errors", func(t *testing.T) { refused(ctx, t, c, model) })
}

// refused asks for what the server refuses and looks at what the client makes of it.
func refused(ctx context.Context, t *testing.T, c openai.Client, model string) {
	_, err := c.Completions.New(ctx, openai.CompletionNewParams{Model: "other", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("x")}})
	var known *openai.Error
	require.True(t, errors.As(err, &known))
	require.Equal(t, 404, known.StatusCode)
	require.Equal(t, "NotFoundError", known.Type)
	require.Contains(t, known.Message, "other")
	_, err = c.Completions.New(ctx, openai.CompletionNewParams{Model: openai.CompletionNewParamsModel(model), N: param.NewOpt(int64(0)),
		Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("x")}})
	require.True(t, errors.As(err, &known))
	require.Equal(t, 400, known.StatusCode)
	require.Equal(t, "n", known.Param)
	_, err = c.Models.List(ctx, option.WithAPIKey("wrong"))
	require.True(t, errors.As(err, &known))
	require.Equal(t, 401, known.StatusCode)
}
