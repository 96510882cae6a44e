package api

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
)

var roles = []string{"system", "developer", "user", "assistant", "tool"}

// ParseChat reads the body of /v1/chat/completions.
func ParseChat(body []byte, l Limits) (*Completion, *Error) {
	f, bad := newFields(body)
	if bad != nil {
		return nil, bad
	}
	if !l.Text {
		return nil, BadRequest("messages", "this server has no tokenizer; send token ids to /v1/completions")
	}
	c := &Completion{Logprobs: -1, PromptLogprobs: -1, Prompts: make([]Prompt, 1)}
	c.Chat = f.chat()
	c.Echo = f.bool("echo", false)
	if c.Echo {
		f.fail("echo", "echo is not supported for chats; use /v1/completions")
	}
	top := int(f.int("top_logprobs", 0, 0, int64(l.MaxLogprobs)))
	if f.bool("logprobs", false) {
		c.Logprobs = top
	} else if top > 0 {
		f.fail("top_logprobs", "top_logprobs %d needs logprobs: true", top)
	}
	c.PromptLogprobs = int(f.int("prompt_logprobs", -1, 0, int64(l.MaxLogprobs)))
	c.MaxTokens = int(f.int("max_tokens", -1, 1, math.MaxInt32))
	c.MaxTokens = int(f.int("max_completion_tokens", int64(c.MaxTokens), 1, math.MaxInt32))
	c.shared(f, l)
	return c.checked(f, l)
}

func (f *fields) chat() *Chat {
	c := &Chat{AddGenerationPrompt: f.bool("add_generation_prompt", true)}
	if raw, ok := f.take("messages"); !ok || json.Unmarshal(raw, &c.Messages) != nil || len(c.Messages) == 0 {
		f.fail("messages", "messages must be a list of at least one message")
	}
	for i, m := range c.Messages {
		c.Messages[i] = f.message(i, m)
	}
	f.tools(c)
	if raw, ok := f.take("chat_template_kwargs"); ok && json.Unmarshal(raw, &c.Extra) != nil {
		f.fail("chat_template_kwargs", "chat_template_kwargs must be an object")
	}
	return c
}

// message checks a message and makes one text of its parts.
func (f *fields) message(i int, raw json.RawMessage) json.RawMessage {
	m, bad := newFields(raw) // names count to the letter, as for the template
	role := ""
	if bad == nil {
		role = m.string("role")
	}
	if bad != nil || m.err != nil || !slices.Contains(roles, role) {
		f.fail("messages", "message %d must be an object whose role is one of %q", i, roles)
		return raw
	}
	if role == "assistant" {
		raw = f.history(i, raw)
	}
	content, ok := m.take("content")
	switch {
	case !ok:
		if role != "assistant" {
			f.fail("messages", "message %d has no content", i)
		}
		return replaceMember(raw, "content", `""`)
	case content[0] == '"':
		return raw
	}
	var parts []json.RawMessage
	if json.Unmarshal(content, &parts) != nil {
		f.fail("messages", "message %d: content must be a string or a list of parts", i)
		return raw
	}
	texts := make([]string, len(parts))
	for j, raw := range parts {
		p, bad := newFields(raw)
		if bad != nil {
			f.fail("messages", "message %d: part %d is no object", i, j)
			return raw
		}
		kind := p.string("type")
		_, ok := p.raw["text"]
		texts[j] = p.string("text")
		if kind != "text" || !ok || p.err != nil {
			f.fail("messages", "message %d: part %d has type %q; only text is supported", i, j, kind)
			return raw
		}
	}
	joined, err := json.Marshal(strings.Join(texts, "\n"))
	if err != nil {
		f.fail("messages", "message %d: %v", i, err)
	}
	return replaceMember(raw, "content", string(joined))
}
