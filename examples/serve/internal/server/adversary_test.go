package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/examples/internal/deploy"
)

// I-51 with letters of several tokens: a stop string may begin and end within any of them. Whole and streamed answers are cut at the same
// place, wherever it is, and no half of a character is sent.
func TestUnicodeStops(t *testing.T) {
	r, say := scripted(t)
	text := "Grüße 😀😀 ende 漢字, naïve fin"
	ids := say(text)
	require.Greater(t, len(ids), utf8.RuneCountInString(text)/2, "many tokens are parts of letters")
	var borders []int
	for i := range text {
		borders = append(borders, i)
	}
	borders = append(borders, len(text))
	for i := 0; i < len(borders); i += 2 {
		for _, n := range []int{1, 2, 5, 9} {
			if i+n >= len(borders) {
				continue
			}
			stop := text[borders[i]:borders[i+n]]
			body := object{"prompt": "x", "max_tokens": 100, "temperature": 0, "stop": []string{"never 漢", stop}}
			want := text[:strings.Index(text, stop)]
			a := r.complete(body)
			require.Equal(t, want, a.Choices[0].Text, "stop %q", stop)
			require.Equal(t, stop, a.Choices[0].StopReason)
			body["stream"] = true
			streamed := ""
			for _, e := range r.stream("/v1/completions", body) {
				require.True(t, utf8.ValidString(e.Choices[0].Text))
				require.NotContains(t, e.Choices[0].Text, "\ufffd")
				streamed += e.Choices[0].Text
			}
			require.Equal(t, want, streamed, "stop %q", stop)
		}
	}
	a := r.complete(object{"prompt": "x", "max_tokens": 100, "temperature": 0, "stop": "😀 ende", "include_stop_str_in_output": true})
	require.Equal(t, "Grüße 😀😀 ende", a.Choices[0].Text)
	// An answer that is cut within a letter ends with a replacement character, once, streamed or not.
	for n := 1; n < len(ids); n++ {
		body := object{"prompt": "x", "max_tokens": n, "temperature": 0}
		a := r.complete(body)
		require.True(t, strings.HasPrefix(text, strings.TrimRight(a.Choices[0].Text, "\ufffd")), "%q", a.Choices[0].Text)
		body["stream"] = true
		streamed := ""
		for _, e := range r.stream("/v1/completions", body) {
			streamed += e.Choices[0].Text
		}
		require.Equal(t, a.Choices[0].Text, streamed)
	}
}

// I-52 in letters of several bytes and tokens: offsets are in characters, echo included, of the text as the client has it.
func TestUnicodeOffsets(t *testing.T) {
	r, say := scripted(t)
	ids := say("Größe 漢字 naïve ende")
	body := object{"prompt": "Grüße 漢 ", "max_tokens": len(ids), "temperature": 0, "logprobs": 0, "echo": true}
	a := r.complete(body)
	require.Equal(t, "Grüße 漢 Größe 漢字 naïve ende", a.Choices[0].Text)
	body["stream"] = true
	var offsets []int
	for _, e := range r.stream("/v1/completions", body) {
		offsets = append(offsets, e.Choices[0].Logprobs.TextOffset...)
	}
	lp, letters := a.Choices[0].Logprobs, []rune(a.Choices[0].Text)
	require.Equal(t, lp.TextOffset, offsets)
	checked := 0
	for i, token := range lp.Tokens {
		if at := lp.TextOffset[i]; !strings.HasPrefix(token, "bytes:") {
			require.Equal(t, token, string(letters[at:at+utf8.RuneCountInString(token)]), "token %d", i)
			checked++
		}
	}
	require.Greater(t, len(lp.Tokens), checked, "some tokens are parts of letters")
	require.Greater(t, checked, len(lp.Tokens)/3)
	require.Less(t, lp.TextOffset[len(lp.TextOffset)-1], len(letters))
}

// prompt_logprobs of 0 go with a stream: they come in its first chunk.
func TestPromptLogprobsInStream(t *testing.T) {
	r := start(t, "tp1")
	body := object{"prompt": []int{5, 6, 7}, "prompt_logprobs": 0, "max_tokens": 2, "ignore_eos": true, "temperature": 0}
	whole := r.complete(body)
	require.Len(t, whole.Choices[0].PromptLogprobs, 3)
	body["stream"] = true
	for i, e := range r.stream("/v1/completions", body) {
		require.Equal(t, i == 0, e.Choices[0].PromptLogprobs != nil)
		if i == 0 {
			require.Equal(t, whole.Choices[0].PromptLogprobs, e.Choices[0].PromptLogprobs)
		}
	}
}

// I-53: logprobs of minus infinity, of prompt, chosen and other tokens, on both routes, are JSON.
func TestMinusInfinity(t *testing.T) {
	r, say := scripted(t, func(_ *deploy.Config, c *Config) {})
	r.model.low = float32(math.Inf(-1))
	say("Hello there")
	body := object{"prompt": "Hello", "max_tokens": 4, "temperature": 0, "logprobs": 3, "echo": true, "prompt_logprobs": 2}
	a := r.complete(body)
	lp := a.Choices[0].Logprobs
	lowest := 0
	for i, top := range lp.TopLogprobs {
		require.NotNil(t, lp.TokenLogprobs[max(i, 1)])
		for _, v := range top {
			require.GreaterOrEqual(t, v, -9999.0)
			if v == -9999 {
				lowest++
			}
		}
	}
	require.Positive(t, lowest)
	delete(body, "prompt_logprobs")
	body["stream"] = true
	require.NotEmpty(t, r.stream("/v1/completions", body))
	c := r.ok("/v1/chat/completions", object{"messages": []object{{"role": "user", "content": "x"}}, "logprobs": true, "top_logprobs": 3, "temperature": 0})
	require.Equal(t, 0.0, c.Choices[0].Logprobs.Content[0].Logprob)
	// A draw from what is left, which is one token.
	b := r.complete(object{"prompt": "Hello", "max_tokens": 20, "temperature": 5, "top_p": 0.5})
	require.Equal(t, "Hello there", b.Choices[0].Text)
}

// max_tokens 0 with stream: one chunk for each choice with the prompt and its logprobs, then usage and the end.
func TestScoreStream(t *testing.T) {
	r := start(t, "dp2")
	body := object{"prompt": []string{"Hello there", "three of five"}, "n": 2, "max_tokens": 0, "echo": true, "logprobs": 1}
	whole := r.complete(body)
	body["stream"], body["stream_options"] = true, object{"include_usage": true}
	events := r.stream("/v1/completions", body)
	require.Len(t, events, 5)
	require.Equal(t, *whole.Usage, *events[4].Usage)
	require.Zero(t, events[4].Usage.Completion)
	for _, e := range events[:4] {
		c := e.Choices[0]
		require.Equal(t, whole.Choices[c.Index].Text, c.Text)
		require.Equal(t, whole.Choices[c.Index].Logprobs, c.Logprobs)
		require.Equal(t, "length", *c.FinishReason)
	}
}

// Values at the edge of what is allowed give an answer, those beyond it 400; nothing gives 500.
func TestExtremes(t *testing.T) {
	r := start(t, "tp2")
	all := object{}
	for id := range r.s.cfg.VocabSize {
		all[fmt.Sprint(id)] = -100
	}
	ban := func(value float64) object {
		b := object{}
		for k := range all {
			b[k] = value
		}
		return b
	}
	every := make([]int, 1024)
	for i := range every {
		every[i] = i
	}
	for _, more := range []object{
		{"logit_bias": all}, {"logit_bias": ban(100)}, {"logit_bias": object{"5": 100, "6": -100}, "temperature": 1e-38},
		{"repetition_penalty": 1e-38}, {"repetition_penalty": 3.4e38}, {"repetition_penalty": 1e-45, "presence_penalty": 2, "frequency_penalty": -2},
		{"temperature": 1e38}, {"temperature": 1e-44, "top_p": 1e-30, "min_p": 1, "top_k": 1}, {"top_k": math.MaxInt32}, {"min_p": 1, "top_p": 1e-38},
		{"seed": math.MaxInt64, "n": 3}, {"seed": math.MinInt64}, {"stop_token_ids": every, "min_tokens": 4}, {"stop": strings.Repeat("é", 512)},
		{"priority": math.MinInt64}, {"cache_salt": strings.Repeat("s", 1<<16)}, {"request_id": "a\nb"}, {"user": object{"a": 1}}, {"truncate_prompt_tokens": 1},
		{"prompt": "\u0000"}, {"prompt": "<|im_start|><|im_end|>"}, {"prompt": "\ufeff\u200b"}, {"logprobs": 20, "prompt_logprobs": 20, "echo": true},
	} {
		body := object{"prompt": "The budget", "max_tokens": 4, "ignore_eos": true}
		for k, v := range more {
			body[k] = v
		}
		a := r.complete(body)
		require.Equal(t, 4*len(a.Choices), a.Usage.Completion, "%v", more)
	}
	for _, body := range []string{
		`{"prompt":"x","n":1025}`, `{"prompt":"x","n":99999999999999999999}`, `{"prompt":"x","n":1e3}`, `{"prompt":"x","n":[1]}`, `{"prompt":"x","logit_bias":{"5":1e400}}`,
		`{"prompt":"x","logit_bias":{"5":1,"05":2}}`, `{"prompt":"x","logit_bias":{"99999999999":1}}`, `{"prompt":"x","logit_bias":{"":1}}`, `{"prompt":"x","temperature":NaN}`,
		`{"prompt":"x","temperature":1e39}`, `{"prompt":"x","max_tokens":99999999999}`, `{"prompt":"x","max_tokens":2147483647}`, `{"prompt":"x","n":1024,"max_tokens":1000,"logprobs":20}`,
		`{"prompt":` + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + `}`, `{"prompt":"x","user":` + strings.Repeat(`{"a":`, 20000) + `1` + strings.Repeat("}", 20000) + `}`,
		"{\"prompt\":\"x\"}\x00", `{"prompt":"x"`, `{"prompt":"x",}`, "\ufeff{}", `{"prompt":"x"} garbage`, `"prompt"`, `{"prompt":"x","stop":{"a":1}}`, `{"prompt":{"0":"x"}}`,
	} {
		r.refused("/v1/completions", 400, body)
	}
	// The same member twice: the last counts, as in Python.
	a := r.complete(`{"prompt":"x","max_tokens":9,"max_tokens":2,"ignore_eos":true}`)
	require.Equal(t, 2, a.Usage.Completion)
	// What is no UTF-8, and halves of surrogates, become replacement characters.
	require.Equal(t, r.complete("{\"prompt\":\"a\xffb\",\"max_tokens\":1}").Usage.Prompt, r.complete(`{"prompt":"a\ud800b","max_tokens":1}`).Usage.Prompt)
	deep := `{"messages":[{"role":"user","content":"x","extra":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}]}`
	require.Contains(t, r.refused("/v1/chat/completions", 400, deep), "nested")
	r.idle()
	require.Zero(t, r.d.Engine.Stats().Total().Failed)
}

// 1024 choices of one request, whole and streamed, with few places: all end, once each.
func TestManyChoices(t *testing.T) {
	r := start(t, "dp2", func(d *deploy.Config, _ *Config) { d.MaxSeqs = 16 })
	body := object{"prompt": "x", "n": 1024, "max_tokens": 2, "ignore_eos": true, "seed": 5}
	a := r.complete(body)
	require.Len(t, a.Choices, 1024)
	require.Equal(t, 2048, a.Usage.Completion)
	body["stream"] = true
	texts, ends := make([]string, 1024), make([]int, 1024)
	for _, e := range r.stream("/v1/completions", body) {
		c := e.Choices[0]
		texts[c.Index] += c.Text
		if c.FinishReason != nil {
			ends[c.Index]++
		}
	}
	for i, c := range a.Choices {
		require.Equal(t, c.Text, texts[i], "choice %d", i)
		require.Equal(t, 1, ends[i])
	}
	r.idle()
}

// raw sends bytes and returns the answer.
func (r *rig) raw(text string) (int, string) {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	require.NoError(r.t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, text)
	require.NoError(r.t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// Headers that come twice: the first key counts, so a wrong one before or after does not open anything that one alone would not; a
// second, different length is refused.
func TestDuplicateHeaders(t *testing.T) {
	r := start(t, "tp1", func(_ *deploy.Config, c *Config) { c.APIKey = "secret" })
	get := func(headers string) int {
		status, _ := r.raw("GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers + "\r\n")
		return status
	}
	require.Equal(t, 401, get("Authorization: Bearer wrong\r\nAuthorization: Bearer secret\r\n"))
	require.Equal(t, 401, get("Authorization: Bearer wrong, Bearer secret\r\n"))
	require.Equal(t, 401, get("Authorization: Bearer secret\r\nAuthorization: Bearer wrong\r\n"), "two keys are no key")
	require.Equal(t, 200, get("Authorization: Bearer secret\r\nX-Request-Id: a\r\nX-Request-Id: b\r\n"))
	body := `{"prompt":"x","max_tokens":1}`
	status, _ := r.raw(fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nContent-Length: 3\r\n\r\n%s", len(body), body))
	require.Equal(t, 400, status)
	status, text := r.raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer secret\r\nTransfer-Encoding: chunked\r\n\r\n" +
		fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body))
	require.Equal(t, 200, status, text)
}

// Bodies that are being read take bounded memory together; what is too much gets 503, and when it is gone there is room again.
func TestManyBodies(t *testing.T) {
	r := start(t, "tp1", func(_ *deploy.Config, c *Config) { c.MaxBodyBytes, c.ReadTimeout = 1<<16, time.Minute })
	var wg sync.WaitGroup
	var conns []net.Conn
	for range 17 { // each sends most of a body and waits
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		require.NoError(t, err)
		conns = append(conns, conn)
		wg.Go(func() {
			_, _ = fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 65536\r\n\r\n%s", strings.Repeat(" ", 65000))
		})
	}
	require.Eventually(t, func() bool {
		resp := r.post("/v1/completions", object{"prompt": "x", "max_tokens": 1, "user": strings.Repeat("u", 60000)})
		defer resp.Body.Close()
		return resp.StatusCode == 503 && resp.Header.Get("Retry-After") == "1"
	}, 20*time.Second, 5*time.Millisecond)
	for _, c := range conns {
		c.Close()
	}
	wg.Wait()
	require.Eventually(t, func() bool { return r.s.bodies.Load() == 0 }, 20*time.Second, time.Millisecond)
	r.complete(object{"prompt": "x", "max_tokens": 1, "user": strings.Repeat("u", 60000)})
}

// Large bodies are made tokens of one at a time; small ones pass them, and a client that leaves gives its turn up.
func TestLargeBodiesTakeTurns(t *testing.T) {
	r := start(t, "tp1")
	r.s.large <- struct{}{} // somebody's turn
	large := object{"prompt": strings.Repeat("\n", largeBody), "max_tokens": 1}
	answered := make(chan string, 1)
	go func() { answered <- r.refused("/v1/completions", 400, large) }()
	data, err := json.Marshal(object{"prompt": strings.Repeat(" ", largeBody)})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, "POST", r.url+"/tokenize", strings.NewReader(string(data)))
	require.NoError(t, err)
	_, err = r.c.Do(q)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	r.complete(object{"prompt": "x", "max_tokens": 1})
	select {
	case text := <-answered:
		require.Fail(t, "answered without its turn", text)
	default:
	}
	<-r.s.large
	require.Contains(t, <-answered, "maximum context length is 1024")
	require.Empty(t, r.s.large)
}

// A panic while an answer is written is that answer's error: the client of a stream is told in the stream, and the server goes on.
func TestPanicInAnswer(t *testing.T) {
	r := start(t, "tp1")
	for _, n := range []int{1, 3} {
		a := &answer{server: r.s, choices: make([]*choice, n)}
		for i := range a.choices {
			a.choices[i] = &choice{server: r.s, index: i} // without a handle: next panics
		}
		ctx := t.Context()
		err := a.run(ctx, func() {}, func(*choice, piece) error { return nil })
		require.Equal(t, http.StatusInternalServerError, clientError(err).Status)
	}
	r.complete(object{"prompt": "x", "max_tokens": 1})
}

// A model's name may have slashes, as those of Hugging Face do.
func TestNamesWithSlashes(t *testing.T) {
	r := start(t, "tp1", func(_ *deploy.Config, c *Config) { c.Models = []string{"org/model-1B"} })
	for path, want := range map[string]int{"/v1/models/org/model-1B": 200, "/v1/models/org%2Fmodel-1B": 200, "/v1/models/org": 404, "/v1/models/": 404} {
		status, text := r.get(path)
		require.Equal(t, want, status, path)
		require.True(t, json.Valid([]byte(text)), text)
	}
	require.Equal(t, "org/model-1B", r.complete(object{"model": "org/model-1B", "prompt": "x", "max_tokens": 1}).Model)
}

// /tokenize gives the ids that a chat runs, also for parts and options.
func TestTokenizeIsTheChatsPrompt(t *testing.T) {
	r := start(t, "tp1")
	for _, more := range []object{{}, {"add_generation_prompt": false}, {"chat_template_kwargs": object{"enable_thinking": false}}} {
		body := object{"messages": []object{{"role": "system", "content": []object{{"type": "text", "text": "a"}, {"type": "text", "text": "b"}}},
			{"role": "user", "content": "Hi"}, {"role": "assistant"}}}
		for k, v := range more {
			body[k] = v
		}
		var ids struct{ Tokens []int32 }
		resp := r.post("/tokenize", body)
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&ids))
		resp.Body.Close()
		body["max_tokens"] = 1
		require.Len(t, ids.Tokens, r.ok("/v1/chat/completions", body).Usage.Prompt)
		require.True(t, slices.ContainsFunc(ids.Tokens, func(id int32) bool { return r.s.cfg.Tokenizer.IsSpecial(id) }))
	}
}
