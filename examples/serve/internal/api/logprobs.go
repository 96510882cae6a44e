package api

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// lowest is what JSON gets in place of minus infinity, which it cannot write.
const lowest = -9999

// Logprob is a natural logarithm of a probability. NaN is written as null, and what is below -9999 as -9999.0.
type Logprob float32

// MarshalJSON writes the shortest decimal that gives the same float32.
func (p Logprob) MarshalJSON() ([]byte, error) {
	v := float64(p)
	switch {
	case math.IsNaN(v):
		return []byte("null"), nil
	case v < lowest:
		return []byte("-9999.0"), nil
	}
	return strconv.AppendFloat(nil, v, 'f', -1, 32), nil
}

// Logprobs are those of completions: four lists of one length.
type Logprobs struct {
	TextOffset    []int          `json:"text_offset"` // in the choice's text, in characters (Unicode code points)
	TokenLogprobs []Logprob      `json:"token_logprobs"`
	Tokens        []string       `json:"tokens"`
	TopLogprobs   []Alternatives `json:"top_logprobs"`
}

// Append adds a token.
func (l *Logprobs) Append(offset int, token string, logprob Logprob, top Alternatives) {
	l.TextOffset = append(l.TextOffset, offset)
	l.Tokens = append(l.Tokens, token)
	l.TokenLogprobs = append(l.TokenLogprobs, logprob)
	l.TopLogprobs = append(l.TopLogprobs, top)
}

// Alternative is a token that could have come.
type Alternative struct {
	ID      int32
	Token   string // as it is written to the client
	Bytes   []byte // the token's own
	Logprob Logprob
	Rank    int // 1 for the most likely; 0 if it is not known
}

// Alternatives are written as an object of tokens and log-probabilities, in their order; nil as null. Of two with the same
// text the first counts.
type Alternatives []Alternative

// MarshalJSON writes {"token": logprob, ...}.
func (a Alternatives) MarshalJSON() ([]byte, error) {
	if a == nil {
		return []byte("null"), nil
	}
	return object(len(a), func(i int) (string, any) { return a[i].Token, a[i].Logprob })
}

// PromptLogprob is one prompt token of prompt_logprobs: an object of ids, as strings, and what is known of them; nil as null.
type PromptLogprob []Alternative

// MarshalJSON writes {"7": {"logprob": -0.5, "rank": 1, "decoded_token": " the"}, ...}.
func (p PromptLogprob) MarshalJSON() ([]byte, error) {
	if p == nil {
		return []byte("null"), nil
	}
	type entry struct {
		Logprob Logprob `json:"logprob"`
		Rank    *int    `json:"rank"` // null if it is beyond what was asked for
		Token   string  `json:"decoded_token"`
	}
	return object(len(p), func(i int) (string, any) {
		e := entry{Logprob: p[i].Logprob, Token: p[i].Token}
		if p[i].Rank > 0 {
			e.Rank = &p[i].Rank
		}
		return strconv.Itoa(int(p[i].ID)), e
	})
}

// object writes members in their order and leaves out names that came before.
func object(n int, member func(i int) (string, any)) ([]byte, error) {
	var b bytes.Buffer
	seen := make(map[string]bool, n)
	b.WriteByte('{')
	for i := range n {
		name, value := member(i)
		if seen[name] {
			continue
		}
		if len(seen) > 0 {
			b.WriteByte(',')
		}
		seen[name] = true
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(text)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// ChatLogprobs are those of chats.
type ChatLogprobs struct {
	Content []ChatLogprob `json:"content"`
}

// ChatLogprob is one token of a chat's answer.
type ChatLogprob struct {
	Token   string        `json:"token"`
	Logprob Logprob       `json:"logprob"`
	Bytes   []int         `json:"bytes"`
	Top     []ChatLogprob `json:"top_logprobs,omitzero"` // nil inside of an alternative
}

// NewChatLogprob converts a token and its alternatives.
func NewChatLogprob(a Alternative, top []Alternative) ChatLogprob {
	c := chatToken(a)
	c.Top = make([]ChatLogprob, len(top))
	for i, t := range top {
		c.Top[i] = chatToken(t)
	}
	return c
}

func chatToken(a Alternative) ChatLogprob {
	c := ChatLogprob{Token: a.Token, Logprob: a.Logprob, Bytes: make([]int, len(a.Bytes))}
	for i, b := range a.Bytes {
		c.Bytes[i] = int(b)
	}
	return c
}
