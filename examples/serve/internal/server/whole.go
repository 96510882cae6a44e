package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/weftgo/weft/examples/serve/internal/api"
)

// whole answers when all choices have ended.
func (a *answer) whole(ctx context.Context, cancel context.CancelFunc, w http.ResponseWriter) {
	texts := make([]strings.Builder, len(a.choices))
	sums := make([]piece, len(a.choices))
	err := a.run(ctx, cancel, func(c *choice, p piece) error {
		texts[c.index].WriteString(p.text)
		s := &sums[c.index]
		s.ids = append(s.ids, p.ids...)
		s.calls = append(s.calls, p.calls...)
		s.tokens = append(s.tokens, p.tokens...)
		if p.prompt != nil {
			s.prompt = p.prompt
		}
		if p.promptID != nil {
			s.promptID = p.promptID
		}
		s.finish, s.reason = p.finish, p.reason
		return nil
	})
	if err != nil {
		a.server.fail(w, clientError(err))
		return
	}
	object := api.ObjectCompletion
	if a.req.Chat != nil {
		object = api.ObjectChat
	}
	r := a.response(object)
	r.Usage = a.usage()
	for i := range sums {
		sums[i].text = texts[i].String()
		r.Choices = append(r.Choices, a.choice(i, &sums[i], true, false, r))
	}
	a.server.reply(w, http.StatusOK, r)
}

// choice writes a piece, or a whole answer, as a client reads it.
func (a *answer) choice(index int, p *piece, whole, role bool, r *api.Response) api.Choice {
	c := api.Choice{Index: index, StopReason: p.reason}
	if p.finish != "" {
		c.FinishReason = &p.finish
	}
	if a.req.ReturnIDs || a.server.cfg.Tokenizer == nil {
		c.TokenIDs = p.ids
		if c.TokenIDs == nil {
			c.TokenIDs = []int32{}
		}
	}
	if a.req.Chat == nil {
		c.Text = &p.text
		c.PromptTokenIDs, c.PromptLogprobs = p.promptID, p.prompt
		if a.req.Logprobs >= 0 {
			c.Logprobs = newLogprobs(p)
		}
		return c
	}
	if p.promptID != nil {
		r.PromptTokenIDs = p.promptID
	}
	if p.prompt != nil {
		r.PromptLogprobs = p.prompt
	}
	if whole {
		c.Message = message(p)
	} else {
		c.Delta = a.delta(p, role)
	}
	if a.req.Logprobs >= 0 {
		list := &api.ChatLogprobs{Content: make([]api.ChatLogprob, len(p.tokens))}
		for i, t := range p.tokens {
			list.Content[i] = api.NewChatLogprob(t.Alternative, t.top[:min(len(t.top), a.req.Logprobs)])
		}
		c.Logprobs = list
	}
	return c
}

// message is a whole answer; its content is null if it is nothing but calls.
func message(p *piece) *api.Message {
	m := &api.Message{Role: "assistant", Content: &p.text, ToolCalls: p.calls}
	if len(p.calls) > 0 && p.text == "" {
		m.Content = nil
	}
	for i := range m.ToolCalls {
		m.ToolCalls[i].Index = nil
	}
	return m
}

// delta is what a piece adds. While a call is on its way there is nothing to say.
func (a *answer) delta(p *piece, role bool) *api.Delta {
	d := &api.Delta{ToolCalls: p.calls}
	if role {
		d.Role = "assistant"
	}
	if p.text != "" || role || !a.req.Chat.FindCalls {
		d.Content = &p.text
	}
	return d
}

func newLogprobs(p *piece) *api.Logprobs {
	l := &api.Logprobs{TextOffset: []int{}, TokenLogprobs: []api.Logprob{}, Tokens: []string{}, TopLogprobs: []api.Alternatives{}}
	for _, t := range p.tokens {
		l.Append(t.offset, t.Token, t.Logprob, t.top)
	}
	return l
}
