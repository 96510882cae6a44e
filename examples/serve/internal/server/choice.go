package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weftgo/weft/examples/internal/engine"
	"github.com/weftgo/weft/examples/serve/internal/api"
	"github.com/weftgo/weft/examples/serve/internal/detok"
	"github.com/weftgo/weft/examples/serve/internal/toolcall"
)

// choice is one answer under way: a request of the engine and the text that its tokens make.
type choice struct {
	server *Server
	req    *api.Completion
	index  int
	ids    []int32 // of the prompt
	handle *engine.Handle
	text   *detok.Text
	calls  *toolcall.Parser // nil: calls in the text are text
	echo   string           // the prompt's text, to be sent before the first token's
	begins []int            // where the prompt's tokens begin in it

	began   bool
	stopped bool      // by a stop string
	last    time.Time // of the token before

	numTokens int // generated and reported
	numCalls  int
	cached    int // prompt tokens from the prefix cache, known at the end
}

// piece is what one token adds to an answer. The first has the prompt too, if that is echoed.
type piece struct {
	text     string
	calls    []api.ToolCall
	ids      []int32
	tokens   []token // of logprobs: the prompt's, then the new one's; empty if none are wanted
	prompt   []api.PromptLogprob
	promptID []int32

	cached int
	finish string // not "" in the last piece
	reason any    // why, for finish "stop"
}

// token is an entry of logprobs.
type token struct {
	offset int
	api.Alternative
	top []api.Alternative // nil for the first token of a prompt
}

func (s *Server) newChoice(req *api.Completion, stops *detok.Stops, index int, ids []int32) *choice {
	c := &choice{server: s, req: req, index: index, ids: ids}
	start := 0
	if req.Echo {
		c.echo, c.begins = detok.Split(s.cfg.Tokenizer, ids)
		start = utf8.RuneCountInString(c.echo)
	}
	c.text = detok.New(s.cfg.Tokenizer, detok.Options{Stops: stops, IncludeStop: req.IncludeStop, MinTokens: req.MinTokens,
		KeepSpecial: req.KeepSpecial}, start)
	if req.Chat != nil && req.Chat.FindCalls {
		c.calls = &toolcall.Parser{}
	}
	return c
}

// next waits for the next token and returns what it adds. An error ends the answer.
func (c *choice) next(ctx context.Context) (piece, error) {
	p, err := c.nextText(ctx)
	if err == nil && c.calls != nil {
		c.findCalls(&p)
	}
	return p, err
}

// findCalls takes the calls of functions out of a piece's text.
func (c *choice) findCalls(p *piece) {
	text, calls := c.calls.Push(p.text)
	if p.finish != "" {
		rest, last := c.calls.Flush()
		text, calls = text+rest, append(calls, last...)
	}
	p.text = text
	for _, call := range calls {
		if c.numCalls > 0 && c.req.Chat.OneCall {
			break
		}
		p.calls = append(p.calls, api.ToolCall{Index: new(c.numCalls), ID: "call_" + rand.Text(), Type: "function",
			Function: api.Function{Name: call.Name, Arguments: call.Arguments}})
		c.numCalls++
	}
	if p.finish == "stop" && c.numCalls > 0 {
		p.finish = "tool_calls"
	}
}

// nextText is next before calls of functions are found.
func (c *choice) nextText(ctx context.Context) (piece, error) {
	e, err := c.handle.Next(ctx)
	if errors.Is(err, io.EOF) { // without a last token: nothing was to be generated, or the request was aborted
		return c.ended(ctx)
	}
	if err != nil {
		return piece{}, err
	}
	p := c.first()
	c.server.meter.token(c)
	p.ids = []int32{e.ID}
	text, offset := c.read(&p, e)
	p.text += text
	if c.req.Logprobs >= 0 {
		p.tokens = append(p.tokens, c.token(offset, e.ID, e.Logprob, e.Top))
	}
	if p.finish != "" {
		out, _ := c.handle.Wait(ctx) // it has ended with this token; what kind of end does not matter any more
		p.cached = out.Usage.CachedTokens
	}
	return p, nil
}

// read makes the text of a token and says whether the answer ends with it.
func (c *choice) read(p *piece, e engine.Event) (text string, offset int) {
	if e.Finish == engine.FinishStop {
		p.finish = "stop"
		if slices.Contains(c.req.StopIDs, e.ID) {
			p.reason = e.ID
		}
		if !c.req.IncludeStop {
			offset = c.text.Skip()
			text, _ = c.text.Flush()
			return text, offset
		}
	}
	text, offset, hit := c.text.Push(e.ID)
	if hit == "" && e.Finish != "" {
		var rest string
		rest, hit = c.text.Flush()
		text += rest
		if p.finish == "" {
			p.finish = string(e.Finish)
		}
	}
	if hit != "" {
		c.handle.Abort() // the engine knows ids only; this frees the blocks now
		c.stopped = true
		p.finish, p.reason = "stop", hit
	}
	return text, offset
}

// ended is the last piece of an answer whose end came without a token.
func (c *choice) ended(ctx context.Context) (piece, error) {
	out, err := c.handle.Wait(ctx)
	if err != nil {
		return piece{}, err
	}
	p := piece{finish: string(out.Reason)}
	if out.Reason != engine.FinishAbort {
		p = c.first()
		p.finish = string(out.Reason)
	}
	rest, _ := c.text.Flush()
	p.text += rest
	p.cached = out.Usage.CachedTokens
	return p, nil
}

// first returns the prompt's part of the first piece; later ones begin empty.
func (c *choice) first() (p piece) {
	if c.began {
		return p
	}
	c.began = true
	p.text = c.echo
	if c.req.ReturnIDs || c.server.cfg.Tokenizer == nil {
		p.promptID = c.ids
	}
	if c.req.Logprobs < 0 && c.req.PromptLogprobs < 0 {
		return p
	}
	logprobs, top := c.handle.Echo()
	if c.req.Echo && c.req.Logprobs >= 0 {
		for i, lp := range logprobs {
			t := token{offset: c.begins[i], Alternative: c.server.alternative(c.ids[i], lp, 0, c.req.TokensAsIDs)}
			if i > 0 {
				t = c.token(c.begins[i], c.ids[i], lp, at(top, i))
			}
			p.tokens = append(p.tokens, t)
		}
	}
	if c.req.PromptLogprobs >= 0 {
		p.prompt = make([]api.PromptLogprob, len(logprobs))
		for i, lp := range logprobs[1:] {
			p.prompt[i+1] = c.server.alternatives(c.ids[i+1], lp, at(top, i+1), c.req.PromptLogprobs, c.req.TokensAsIDs)
		}
	}
	return p
}

func at(top [][]engine.TopLogprob, i int) []engine.TopLogprob {
	if top == nil {
		return nil
	}
	return top[i]
}

// token is the logprobs entry of a token.
func (c *choice) token(offset int, id int32, logprob float32, top []engine.TopLogprob) token {
	list := c.server.alternatives(id, logprob, top, c.req.Logprobs, c.req.TokensAsIDs)
	t := token{offset: offset, top: list}
	t.Alternative = list[slices.IndexFunc(list, func(a api.Alternative) bool { return a.ID == id })]
	return t
}

// alternatives are the k best tokens, best first, and then the token itself if it is not among them.
func (s *Server) alternatives(id int32, logprob float32, top []engine.TopLogprob, k int, asID bool) []api.Alternative {
	list := make([]api.Alternative, 0, k+1)
	found := false
	rank := 0
	for i, t := range top {
		if t.ID == id {
			rank = i + 1
		}
		if i < k {
			list = append(list, s.alternative(t.ID, t.Logprob, i+1, asID))
			found = found || t.ID == id
		}
	}
	if !found {
		list = append(list, s.alternative(id, logprob, rank, asID))
	}
	return list
}

// alternative writes a token for a client: its text; "bytes:\x.." when that is not whole characters; "token_id:7" when asked
// for, or without a tokenizer.
func (s *Server) alternative(id int32, logprob float32, rank int, asID bool) api.Alternative {
	a := api.Alternative{ID: id, Logprob: api.Logprob(logprob), Rank: rank}
	if math.IsInf(float64(logprob), -1) {
		a.Rank = 0 // all impossible tokens are equal
	}
	if s.cfg.Tokenizer == nil || asID {
		a.Token = fmt.Sprintf("token_id:%d", id)
	}
	if s.cfg.Tokenizer != nil {
		a.Bytes = s.cfg.Tokenizer.TokenBytes(id)
		switch {
		case asID:
		case utf8.Valid(a.Bytes):
			a.Token = string(a.Bytes)
		default:
			var b strings.Builder
			b.WriteString("bytes:")
			for _, x := range a.Bytes {
				fmt.Fprintf(&b, `\x%02x`, x)
			}
			a.Token = b.String()
		}
	}
	return a
}
