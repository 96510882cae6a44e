package server

import (
	"github.com/weftgo/weft/examples/internal/chat"
	"github.com/weftgo/weft/examples/internal/engine"
	"github.com/weftgo/weft/examples/serve/internal/api"
)

// renderChat makes the prompt of a conversation.
func (s *Server) renderChat(c *api.Chat) (string, *api.Error) {
	if s.cfg.Template == nil {
		return "", api.BadRequest("messages", "this model has no chat template; use /v1/completions")
	}
	if c.FindCalls && !s.cfg.Template.Mentions("tools") {
		return "", api.BadRequest("tools", "this model's chat template has no place for tools, so the model would never see them; leave them out")
	}
	text, err := s.cfg.Template.Render(chat.Input{Messages: c.Messages, Tools: c.Tools, AddGenerationPrompt: c.AddGenerationPrompt, Extra: c.Extra})
	if err != nil {
		return "", api.BadRequest("messages", "%v", err)
	}
	if text == "" {
		return "", api.BadRequest("messages", "the chat template made an empty prompt of the messages")
	}
	return text, nil
}

// promptIDs returns the ids of every prompt, cut and checked against the context.
func (s *Server) promptIDs(c *api.Completion) ([][]int32, *api.Error) {
	all := make([][]int32, len(c.Prompts))
	for i, p := range c.Prompts {
		ids, text := p.IDs, p.Text
		if c.Chat != nil {
			var bad *api.Error
			if text, bad = s.renderChat(c.Chat); bad != nil {
				return nil, bad
			}
		}
		if !p.IsIDs {
			ids = s.cfg.Tokenizer.Encode(text)
		}
		limit, room := s.maxModelLen(), max(c.MaxTokens, 0)
		if c.MaxTokens < 0 {
			room = 1
		}
		keep := c.Truncate
		if keep < 0 {
			keep = max(limit-room, 1)
		}
		if keep > 0 && len(ids) > keep {
			ids = ids[len(ids)-keep:]
		}
		if len(ids) > limit || len(ids)+room > limit {
			blame := "prompt"
			if room > len(ids) { // the larger of the two
				blame = "max_tokens"
			}
			return nil, api.BadRequest(blame, "this model's maximum context length is %d tokens, but prompt %d has %d tokens and %d more are asked for: %d in all; shorten the prompt or lower max_tokens",
				limit, i, len(ids), room, len(ids)+room)
		}
		all[i] = ids
	}
	return all, nil
}

// engineRequest is choice i of a prompt.
func (s *Server) engineRequest(c *api.Completion, ids []int32, i int) engine.Request {
	r := engine.Request{IDs: ids, MaxTokens: c.MaxTokens, MinTokens: c.MinTokens, Logprobs: max(c.Logprobs, c.PromptLogprobs),
		Echo: c.Echo && c.Logprobs >= 0 || c.PromptLogprobs >= 0 || c.MaxTokens == 0,
		Stop: c.StopIDs, IgnoreEOS: c.IgnoreEOS, Sampling: c.Sampling, CacheSalt: c.CacheSalt}
	if c.MaxTokens < 0 {
		r.MaxTokens = s.maxModelLen() - len(ids)
	}
	if seed := c.Sampling.Seed; seed != nil { // choice i of n answers as a request with seed + i does
		r.Sampling.Seed = new(*seed + int64(i))
	}
	return r
}
