package api

import (
	"bytes"
	"encoding/json"
)

// prompts reads the four forms of prompt: a string, strings, ids, lists of ids.
func (f *fields) prompts(l Limits) []Prompt {
	raw, ok := f.take("prompt")
	if !ok {
		f.fail("prompt", "there is no prompt; it must be a string, a list of strings, a list of token ids or a list of such lists")
		return nil
	}
	list, bad := parsePrompts(raw, l)
	if bad != nil && f.err == nil {
		f.err = bad
	}
	return list
}

func parsePrompts(raw json.RawMessage, l Limits) ([]Prompt, *Error) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return textPrompts([]string{one}, l)
	}
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return nil, BadRequest("prompt", "prompt must be a string, a list of strings, a list of token ids or a list of such lists, not %s", clip(raw))
	}
	if len(items) == 0 {
		return nil, BadRequest("prompt", "prompt is an empty list")
	}
	switch first := bytes.TrimSpace(items[0]); {
	case len(first) > 0 && first[0] == '"':
		texts := make([]string, len(items))
		for i, item := range items {
			if json.Unmarshal(item, &texts[i]) != nil || string(item) == "null" {
				return nil, BadRequest("prompt", "prompt %d of the list is not a string as the first is", i)
			}
		}
		return textPrompts(texts, l)
	case len(first) > 0 && first[0] == '[':
		prompts := make([]Prompt, len(items))
		for i, item := range items {
			p, bad := idPrompt(item, i, l)
			if bad != nil {
				return nil, bad
			}
			prompts[i] = p
		}
		return capped(prompts, l)
	}
	p, bad := idPrompt(raw, 0, l)
	return []Prompt{p}, bad
}

func idPrompt(raw json.RawMessage, i int, l Limits) (Prompt, *Error) {
	ids, err := parseIDs(raw)
	if err != nil {
		return Prompt{}, BadRequest("prompt", "prompt %d is not a list of token ids: %s", i, clip(raw))
	}
	if len(ids) == 0 {
		return Prompt{}, BadRequest("prompt", "prompt %d is empty", i)
	}
	for at, id := range ids {
		if id < 0 || int(id) >= l.VocabSize {
			return Prompt{}, BadRequest("prompt", "prompt %d has id %d at position %d, which is not in [0, %d)", i, id, at, l.VocabSize)
		}
	}
	return Prompt{IDs: ids, IsIDs: true}, nil
}

func textPrompts(texts []string, l Limits) ([]Prompt, *Error) {
	if !l.Text {
		return nil, BadRequest("prompt", "this server has no tokenizer; send token ids")
	}
	prompts := make([]Prompt, len(texts))
	for i, s := range texts {
		if s == "" {
			return nil, BadRequest("prompt", "prompt %d is empty", i)
		}
		prompts[i] = Prompt{Text: s}
	}
	return capped(prompts, l)
}

func capped(prompts []Prompt, l Limits) ([]Prompt, *Error) {
	if len(prompts) > l.MaxPrompts {
		return nil, BadRequest("prompt", "%d prompts in one request; at most %d", len(prompts), l.MaxPrompts)
	}
	return prompts, nil
}
