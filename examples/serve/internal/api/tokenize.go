package api

import "slices"

// Tokenize is a checked request of /tokenize: a text, or a conversation.
type Tokenize struct {
	Prompt       string
	Chat         *Chat // nil for a text
	TokenStrings bool
	Unknown      []string
}

// ParseTokenize reads the body of /tokenize. A conversation is read as /v1/chat/completions reads it, so that the ids are the same.
func ParseTokenize(body []byte, l Limits) (*Tokenize, *Error) {
	f, bad := newFields(body)
	if bad != nil {
		return nil, bad
	}
	if !l.Text {
		return nil, BadRequest("", "this server has no tokenizer")
	}
	q := &Tokenize{}
	_, text := f.raw["prompt"]
	_, chat := f.raw["messages"]
	switch {
	case chat && text:
		f.fail("prompt", "prompt and messages: one of them")
	case chat:
		q.Chat = f.chat()
	case text:
		q.Prompt = f.string("prompt")
	default:
		f.fail("prompt", "there is no prompt and there are no messages")
	}
	q.TokenStrings = f.bool("return_token_strs", false)
	return q, f.tokens(l, &q.Unknown)
}

// Detokenize is a checked request of /detokenize.
type Detokenize struct {
	Tokens  []int32
	Unknown []string
}

// ParseDetokenize reads the body of /detokenize.
func ParseDetokenize(body []byte, l Limits) (*Detokenize, *Error) {
	f, bad := newFields(body)
	if bad != nil {
		return nil, bad
	}
	if !l.Text {
		return nil, BadRequest("", "this server has no tokenizer")
	}
	q := &Detokenize{}
	if _, ok := f.raw["tokens"]; !ok {
		f.fail("tokens", "there are no tokens")
	}
	q.Tokens = f.ids("tokens")
	for i, id := range q.Tokens {
		if id < 0 || int(id) >= l.VocabSize {
			f.fail("tokens", "id %d at position %d is not in [0, %d)", id, i, l.VocabSize)
		}
	}
	return q, f.tokens(l, &q.Unknown)
}

// tokens reads what both routes have and ends the reading.
func (f *fields) tokens(l Limits, unknown *[]string) *Error {
	model := f.string("model")
	f.bool("add_special_tokens", true) // tokenizers that add any are refused when the model is loaded
	f.refuse()
	*unknown = f.unknown()
	if f.err == nil && model != "" && !slices.Contains(l.Models, model) {
		return notFound(model, l.Models)
	}
	return f.err
}
