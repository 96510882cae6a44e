package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/weftgo/weft/examples/internal/deploy"
	"github.com/weftgo/weft/examples/internal/workload"
	"github.com/weftgo/weft/examples/serve/handler"
)

// httpRow is a run of the workload through the server of examples/serve.
type httpRow struct {
	Name         string  `json:"name"`
	Requests     int     `json:"requests"`
	RequestsPerS float64 `json:"requests_per_s"`
	P50          float64 `json:"p50_ms"`
	P99          float64 `json:"p99_ms"`
	Accuracy     float64 `json:"accuracy"`
	PromptTokens int     `json:"prompt_tokens"`
	HitTokens    int64   `json:"hit_tokens"` // of them from the prefix cache
	Same         bool    `json:"same_as_first_layout"`

	compared row
}

// httpRuns are the runs, in order, on one server with a prefix cache. The salt decides with whom a request shares.
var httpRuns = []struct {
	name string
	salt func(request int) string
}{
	{"http, cold", func(i int) string { return "request " + strconv.Itoa(i) }}, // nobody shares
	{"http, shared prefix", func(int) string { return "all" }},                 // the candidates of a posting share it
	{"http, full replay", func(int) string { return "all" }},                   // every prompt has been there before
}

// http runs the workload three times through a server over the layout.
func (x *experiment) http(ctx context.Context, l namedLayout, p *progress) (rows []*httpRow, err error) {
	p.begin(l.name+" "+httpRuns[0].name, "loading") // by the name of the first run: a bar that is never filled would hold up the end
	tokens := 0
	for _, r := range x.requests {
		tokens += len(x.tok.Encode(r.Prompt)) + r.MaxTokens + 64
	}
	// Room for two salts' worth of prompts, so that the replay finds all of the run before it.
	d, err := deploy.Open(ctx, x.folder, deploy.Config{Layout: l.Layout, MaxBatchedTokens: x.MaxTokens, Timeout: x.Timeout, PrefixCaching: true,
		WaitForPrefix: true, Policy: deploy.PrefixAware(l.Layout, x.MaxTokens), CacheTokens: min(max(2*tokens, x.folder.Config.MaxPositionEmbeddings, 4*x.MaxTokens), 1<<19)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close(ctx)) }()
	routes, err := handler.New(x.folder, d)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: x.inFlight}}
	defer func() {
		client.CloseIdleConnections()
		err = errors.Join(err, server.Close())
		<-served
	}()
	for _, run := range httpRuns {
		p.begin(l.name+" "+run.name, "running")
		r, err := x.httpRun(ctx, client, "http://"+listener.Addr().String(), run.salt, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", run.name, err)
		}
		r.Name = l.name + " " + run.name
		r.compared.Name = r.Name
		rows = append(rows, r)
	}
	return rows, nil
}

func (x *experiment) httpRun(ctx context.Context, client *http.Client, url string, salt func(int) string, p *progress) (*httpRow, error) {
	answers := make([]answer, len(x.requests))
	var hits atomic.Int64
	report, err := workload.Run(ctx, x.requests, x.inFlight, func(ctx context.Context, i int, r workload.Request) (workload.Result, error) {
		got, err := ask(ctx, client, url, r, salt(i))
		if err != nil {
			return workload.Result{}, err
		}
		answers[i] = got.answer(r.TopLogprobs)
		hits.Add(got.Usage.Details.Cached)
		return workload.Result{Text: got.Choices[0].Text, PromptTokens: got.Usage.Prompt, OutputTokens: got.Usage.Completion}, nil
	}, p.done)
	if err != nil {
		return nil, err
	}
	r := &httpRow{Requests: report.NumRequests, RequestsPerS: report.RequestsPerSecond(), P50: ms(report.P50), P99: ms(report.P99),
		Accuracy: report.Accuracy(), PromptTokens: report.PromptTokens, HitTokens: hits.Load()}
	x.compare(&r.compared, answers)
	r.Same = r.compared.Same
	return r, nil
}

// completionAnswer is what the judge reads of an answer of /v1/completions.
type completionAnswer struct {
	Choices []struct {
		Text     string
		IDs      []int32 `json:"token_ids"`
		Logprobs struct {
			Tokens []float32            `json:"token_logprobs"`
			Top    []map[string]float32 `json:"top_logprobs"`
		}
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Error struct{ Message string }
}

func ask(ctx context.Context, client *http.Client, url string, r workload.Request, salt string) (got completionAnswer, err error) {
	body, err := json.Marshal(map[string]any{"prompt": r.Prompt, "max_tokens": r.MaxTokens, "temperature": 0, "logprobs": r.TopLogprobs,
		"cache_salt": salt, "return_token_ids": true, "return_tokens_as_token_ids": true})
	if err != nil {
		return got, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return got, err
	}
	q.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(q)
	if err != nil {
		return got, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return got, err
	}
	if err := json.Unmarshal(text, &got); err != nil {
		return got, fmt.Errorf("status %s: %w", resp.Status, err)
	}
	if resp.StatusCode != http.StatusOK || len(got.Choices) != 1 {
		return got, fmt.Errorf("status %s, %d choices: %s", resp.Status, len(got.Choices), got.Error.Message)
	}
	return got, nil
}

// answer is the form in which layouts are compared; k is how many alternatives were asked for.
func (c *completionAnswer) answer(k int) answer {
	choice := &c.Choices[0]
	a := answer{ids: choice.IDs, logprobs: choice.Logprobs.Tokens}
	for _, top := range choice.Logprobs.Top {
		if k == 0 {
			break // then the server gives the token's own
		}
		row := slices.Sorted(maps.Values(top))
		slices.Reverse(row) // best first
		a.top = append(a.top, row)
	}
	return a
}

// printHTTP writes the rows for a person.
func printHTTP(w io.Writer, rows []*httpRow) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprint(w, "\nThe same workload through the server of examples/serve:\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "run\treq/s\tp50 ms\tp99 ms\tprompt tokens\thit tokens\taccuracy\tsame answers\t\n")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%.2f\t%.0f\t%.0f\t%d\t%d\t%.1f%%\t%s\t\n", r.Name, r.RequestsPerS, r.P50, r.P99, r.PromptTokens, r.HitTokens, 100*r.Accuracy, yes(r.Same))
	}
	t.Flush()
	for _, r := range rows {
		for _, p := range r.compared.Problems {
			fmt.Fprintf(w, "PROBLEM %s: %s\n", r.Name, p)
		}
	}
}
