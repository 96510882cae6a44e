package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/examples/internal/bundled"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/deploy"
	"github.com/weftgo/weft/examples/internal/engine"
	"github.com/weftgo/weft/examples/internal/layout"
	"github.com/weftgo/weft/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server over the bundled model, and a client.
type rig struct {
	t   testing.TB
	s   *Server
	d   *deploy.Deployment
	url string
	c   *http.Client

	model *script // of a scripted server
}

func start(t testing.TB, name string, change ...func(*deploy.Config, *Config)) *rig {
	l, err := layout.Parse(name)
	require.NoError(t, err)
	folder, err := checkpoint.OpenFS(bundled.FS(), bundled.Name)
	require.NoError(t, err)
	dc := deploy.Config{Layout: l, MaxBatchedTokens: 512, MaxModelLen: 1024, BlockSize: 16, Policy: engine.PrefixAware(512),
		Timeout: 20 * time.Second, Recorder: trace.New(l.Size(), trace.Totals)}
	sc := Config{Models: []string{"judge", "alias"}, Version: "test"}
	require.NoError(t, sc.Read(folder))
	for _, f := range change {
		f(&dc, &sc)
	}
	d, err := deploy.Open(t.Context(), folder, dc)
	require.NoError(t, err)
	sc.Deployment, sc.Recorder = d, dc.Recorder
	r := &rig{t: t, s: New(sc), d: d}
	h := httptest.NewUnstartedServer(r.s)
	h.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(4096) // so that a client that does not read is felt soon
		return ctx
	}
	h.Start()
	r.url, r.c = h.URL, h.Client()
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		err := d.Close(ctx)
		if d.World.Err() == nil {
			require.NoError(t, err)
		}
		<-d.Engine.Done()
		require.NoError(t, folder.Close())
	})
	return r
}

// answerOf is an answer as a client decodes it.
type answerOf struct {
	ID      string
	Object  string
	Created int64
	Model   string
	Choices []struct {
		Index   int
		Text    string
		Message struct{ Role, Content string }
		Delta   struct {
			Role    string
			Content *string
		}
		Logprobs *struct {
			TextOffset    []int                `json:"text_offset"`
			TokenLogprobs []*float64           `json:"token_logprobs"`
			Tokens        []string             `json:"tokens"`
			TopLogprobs   []map[string]float64 `json:"top_logprobs"`
			Content       []struct {
				Token   string
				Logprob float64
				Bytes   []int
				Top     []struct{ Token string } `json:"top_logprobs"`
			}
		}
		FinishReason   *string `json:"finish_reason"`
		StopReason     any     `json:"stop_reason"`
		TokenIDs       []int32 `json:"token_ids"`
		PromptTokenIDs []int32 `json:"prompt_token_ids"`
		PromptLogprobs []map[string]struct {
			Logprob float64
			Rank    *int
			Token   string `json:"decoded_token"`
		} `json:"prompt_logprobs"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Error *struct {
		Message, Type string
		Param         *string
		Code          int
	}
}

func (r *rig) post(path string, body any) *http.Response {
	r.t.Helper()
	data, ok := body.(string)
	if !ok {
		text, err := json.Marshal(body)
		require.NoError(r.t, err)
		data = string(text)
	}
	resp, err := r.c.Post(r.url+path, "application/json", strings.NewReader(data))
	require.NoError(r.t, err)
	return resp
}

func (r *rig) get(path string) (int, string) {
	r.t.Helper()
	resp, err := r.c.Get(r.url + path)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp.StatusCode, string(text)
}

// complete posts to /v1/completions and wants 200.
func (r *rig) complete(body any) answerOf {
	r.t.Helper()
	return r.ok("/v1/completions", body)
}

func (r *rig) ok(path string, body any) (a answerOf) {
	r.t.Helper()
	resp := r.post(path, body)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	require.Equal(r.t, 200, resp.StatusCode, string(text))
	require.NoError(r.t, json.Unmarshal(text, &a), string(text))
	return a
}

// refused posts and wants an error of that status.
func (r *rig) refused(path string, status int, body any) string {
	r.t.Helper()
	resp := r.post(path, body)
	defer resp.Body.Close()
	var a answerOf
	require.NoError(r.t, json.NewDecoder(resp.Body).Decode(&a))
	require.Equal(r.t, status, resp.StatusCode)
	require.NotNil(r.t, a.Error)
	require.Equal(r.t, status, a.Error.Code)
	require.NotEmpty(r.t, a.Error.Message)
	require.NotEmpty(r.t, a.Error.Type)
	return a.Error.Message
}

// stream posts a streaming request and returns the events; the last must be [DONE], exactly once.
func (r *rig) stream(path string, body any) (events []answerOf) {
	r.t.Helper()
	resp := r.post(path, body)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	require.Equal(r.t, 200, resp.StatusCode, string(text))
	require.Equal(r.t, "text/event-stream", resp.Header.Get("Content-Type"))
	require.True(r.t, strings.HasSuffix(string(text), "data: [DONE]\n\n"))
	require.Equal(r.t, 1, strings.Count(string(text), "[DONE]"))
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			require.Empty(r.t, lines.Text())
			continue
		}
		if data == "[DONE]" {
			break
		}
		var a answerOf
		require.NoError(r.t, json.Unmarshal([]byte(data), &a), data)
		events = append(events, a)
	}
	return events
}

// idle waits until no request holds blocks or a place in the queue.
func (r *rig) idle() {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		t := r.d.Engine.Stats().Total()
		return t.Running == 0 && t.Waiting == 0 && t.KVUsed == 0 && r.s.Idle()
	}, 30*time.Second, time.Millisecond)
}

type object = map[string]any

// golden is one prompt of the model's goldens.
type golden struct {
	Name       string
	IDs        []int32
	Completion []int32
	Text       string
	Steps      []struct {
		ID      int32
		Logprob float64
		Top     [][2]float64
	}
	Echo []*float64
}

func goldens(t testing.TB, names ...string) map[string]golden {
	text, err := os.ReadFile("../../../internal/model/testdata/judge.json")
	require.NoError(t, err)
	var f struct{ Prompts []golden }
	require.NoError(t, json.Unmarshal(text, &f))
	found := map[string]golden{}
	for _, g := range f.Prompts {
		for _, n := range names {
			if n == g.Name {
				found[n] = g
			}
		}
	}
	require.Len(t, found, len(names))
	return found
}
