package server

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/examples/internal/deploy"
	"github.com/weftgo/weft/examples/internal/prompts"
)

func TestRoutes(t *testing.T) {
	r := start(t, "dp2+ep2:alltoall")
	for path, text := range map[string]string{"/health": "", "/ping": "", "/version": `"version":"test"`, "/load": `"server_load":0`} {
		status, got := r.get(path)
		require.Equal(t, 200, status, path)
		require.Contains(t, got, text)
	}
	status, got := r.get("/v1/models")
	require.Equal(t, 200, status)
	var list struct {
		Object string
		Data   []struct {
			ID, Object string
			MaxLen     int `json:"max_model_len"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(got), &list))
	require.Equal(t, "list", list.Object)
	require.Len(t, list.Data, 2)
	require.Equal(t, "judge", list.Data[0].ID)
	require.Equal(t, 1024, list.Data[0].MaxLen)
	status, _ = r.get("/v1/models/alias")
	require.Equal(t, 200, status)

	for path, want := range map[string]int{"/v1/models/other": 404, "/nothing": 404, "/v1/completions": 405, "/../etc/passwd": 404} {
		status, got := r.get(path)
		require.Equal(t, want, status, path)
		require.Contains(t, got, `{"error":{"message":`)
	}
	status, got = r.get("/metrics")
	require.Equal(t, 200, status)
	for _, name := range []string{"vllm:num_requests_running{engine=\"1\",model_name=\"judge\"} 0", "vllm:kv_cache_usage_perc", "vllm:prompt_tokens_total",
		"vllm:prefix_cache_hits_total", "vllm:num_preemptions_total", "weft:dp_real_tokens_total", "weft:dummy_steps_total", "weft:expert_balancedness", "go_goroutines"} {
		require.Contains(t, got, name)
	}
}

func TestTokenize(t *testing.T) {
	r := start(t, "tp1")
	post := func(path string, body, answer any) {
		resp := r.post(path, body)
		defer resp.Body.Close()
		require.Equal(t, 200, resp.StatusCode)
		require.NoError(t, json.NewDecoder(resp.Body).Decode(answer))
	}
	var ids struct {
		Count   int
		Tokens  []int32
		Strings []string `json:"token_strs"`
		MaxLen  int      `json:"max_model_len"`
	}
	var text struct{ Prompt string }
	post("/tokenize", object{"prompt": "three of five", "return_token_strs": true}, &ids)
	require.Equal(t, len(ids.Tokens), ids.Count)
	require.Len(t, ids.Strings, ids.Count)
	require.Equal(t, 1024, ids.MaxLen)
	post("/detokenize", object{"tokens": ids.Tokens}, &text)
	require.Equal(t, "three of five", text.Prompt)
	post("/tokenize", object{"messages": []object{{"role": "user", "content": "Hi"}}}, &ids)
	post("/detokenize", object{"tokens": ids.Tokens}, &text)
	require.Equal(t, prompts.Chat("Hi"), text.Prompt)
	require.Contains(t, r.refused("/detokenize", 400, object{"tokens": []int{99999}}), "99999")
	r.refused("/tokenize", 400, object{})
	r.refused("/tokenize", 400, "[]")
}

// The judge as a chat: the template of the folder, and the golden answer of the same prompt.
func TestChats(t *testing.T) {
	r := start(t, "tp2")
	g := goldens(t, "chat-hi", "chat-0")["chat-0"]
	text := strings.TrimSuffix(strings.TrimPrefix(g.Text, "<|im_start|>user\n"), "<|im_end|>\n<|im_start|>assistant\n")
	require.Equal(t, g.Text, prompts.Chat(text))
	body := object{"messages": []object{{"role": "user", "content": []object{{"type": "text", "text": text}}}}, "temperature": 0, "max_completion_tokens": 8,
		"logprobs": true, "top_logprobs": 2, "return_token_ids": true}
	a := r.ok("/v1/chat/completions", body)
	require.Equal(t, "chat.completion", a.Object)
	require.Equal(t, "assistant", a.Choices[0].Message.Role)
	require.Equal(t, g.Completion, a.Choices[0].TokenIDs)
	require.Equal(t, "stop", *a.Choices[0].FinishReason)
	require.Equal(t, len(g.IDs), a.Usage.Prompt)
	content := a.Choices[0].Logprobs.Content
	require.Len(t, content, len(g.Completion))
	for i, step := range g.Steps {
		require.InDelta(t, step.Logprob, content[i].Logprob, 1.1e-3)
		require.Len(t, content[i].Top, 2)
	}

	body["stream"] = true
	streamed := ""
	for i, e := range r.stream("/v1/chat/completions", body) {
		require.Equal(t, "chat.completion.chunk", e.Object)
		require.Equal(t, map[bool]string{true: "assistant"}[i == 0], e.Choices[0].Delta.Role)
		streamed += *e.Choices[0].Delta.Content
	}
	require.Equal(t, a.Choices[0].Message.Content, streamed)
	// Without max_tokens an answer may fill the context.
	a = r.ok("/v1/chat/completions", object{"messages": []object{{"role": "user", "content": "Hi"}}, "ignore_eos": true, "temperature": 0})
	require.Equal(t, 1024, a.Usage.Total)
	require.Contains(t, r.refused("/v1/chat/completions", 400, object{"messages": []object{}}), "messages")
}

func TestKey(t *testing.T) {
	r := start(t, "tp1", func(_ *deploy.Config, c *Config) { c.APIKey = "secret" })
	ask := func(path, header string) int {
		q, err := http.NewRequest("GET", r.url+path, nil)
		require.NoError(t, err)
		if header != "" {
			q.Header.Set("Authorization", header)
		}
		q.Header.Set("X-Request-Id", "id-7")
		resp, err := r.c.Do(q)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, "id-7", resp.Header.Get("X-Request-Id"))
		return resp.StatusCode
	}
	for header, want := range map[string]int{"": 401, "Bearer": 401, "Bearer wrong": 401, "Bearer secretx": 401, "Basic secret": 401, "secret": 401,
		"Bearer secret": 200, "bearer secret": 200} {
		require.Equal(t, want, ask("/v1/models", header), header)
	}
	require.Equal(t, 200, ask("/health", ""))
	require.Contains(t, r.refused("/v1/completions", 401, object{"prompt": "x"}), "API key")
	r.refused("/tokenize", 401, object{"prompt": "x"})
}

func TestPage(t *testing.T) {
	r := start(t, "dp2tp2+ep4:agrs")
	r.complete(object{"prompt": []string{"Hello", "three"}, "max_tokens": 5, "ignore_eos": true})
	resp, err := r.c.Get(r.url + "/")
	require.NoError(t, err)
	resp.Body.Close()
	require.Contains(t, resp.Header.Get("Content-Type"), "text/html")
	require.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'")
	status, page := r.get("/")
	require.Equal(t, 200, status)
	require.NotRegexp(t, `(src|href)=|https?://`, page, "nothing from elsewhere")

	_, text := r.get("/status")
	var s struct {
		Layout   string
		Ranks    []struct{ Rank, Replica int }
		Replicas []struct {
			Context    int64 `json:"context_tokens"`
			Generation int64 `json:"generation_tokens"`
			Total      int   `json:"kv_total"`
		}
		Experts []struct {
			Pairs   []int64
			PerRank []int64 `json:"per_rank"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &s))
	require.Equal(t, "dp2tp2+ep4:agrs", s.Layout)
	require.Len(t, s.Ranks, 4)
	require.Equal(t, 1, s.Ranks[3].Replica)
	require.Len(t, s.Replicas, 2)
	tokens := int64(0)
	for _, x := range s.Replicas {
		require.Positive(t, x.Total)
		tokens += x.Context + x.Generation
	}
	require.Len(t, s.Experts, 4)
	for _, layer := range s.Experts {
		pairs, ranks := int64(0), int64(0)
		for _, n := range layer.Pairs {
			pairs += n
		}
		for _, n := range layer.PerRank {
			ranks += n
		}
		require.Equal(t, 4*tokens, pairs, "top 4 of every token that ran")
		require.Equal(t, pairs, ranks)
	}
}

// A browser shows the page with what the server says; the machine needs Chromium for this.
func TestPageInBrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs chromium in the path")
	}
	r := start(t, "dp2+ep2:alltoall")
	r.complete(object{"prompt": "Hello", "max_tokens": 5, "ignore_eos": true})
	dir, err := os.MkdirTemp("", "weft-browser") // not TempDir, which fails the test when another process of the browser still writes there
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir="+dir,
		"--virtual-time-budget=4000", "--dump-dom", r.url+"/")
	out, err := cmd.Output()
	require.NoError(t, err)
	dom := string(out)
	require.Contains(t, dom, `data-shown="yes"`)
	require.Contains(t, dom, "dp2+ep2:alltoall, 2 ranks")
	require.Contains(t, dom, "32 experts")
	require.Contains(t, dom, `title="compute `)
	require.Regexp(t, `<b id="health" class="">ok</b>`, dom)
}
