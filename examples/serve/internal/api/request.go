package api

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weftgo/weft/examples/internal/sampling"
)

// Limits are the bounds that a server sets.
type Limits struct {
	Models      []string // names under which the model is served; the first is its own
	VocabSize   int
	MaxLogprobs int  // alternatives a token, at most 20
	MaxPrompts  int  // prompts of one request
	MaxChoices  int  // prompts x n of one request
	MaxModelLen int  // tokens of a prompt and its answer
	Text        bool // there is a tokenizer: text in and out
}

// Bounds of stop strings.
const (
	maxStops      = 64
	maxStopBytes  = 1024
	maxStopTokens = 1024
)

// Prompt is text, or ids.
type Prompt struct {
	Text  string
	IDs   []int32 // used if IsIDs
	IsIDs bool
}

// Completion is a checked request of either route.
type Completion struct {
	Model          string
	Prompts        []Prompt // one of them with Chat
	Chat           *Chat    // nil for /v1/completions
	MaxTokens      int      // -1: what the context has room for (chat only)
	MinTokens      int
	N              int
	Logprobs       int // alternatives for each token; -1: none wanted
	PromptLogprobs int // the same for the prompt's
	Echo           bool

	Stop        []string
	StopIDs     []int32
	IncludeStop bool
	IgnoreEOS   bool
	Sampling    sampling.Params

	Stream          bool
	IncludeUsage    bool
	ContinuousUsage bool

	KeepSpecial bool // special tokens appear in the text
	Truncate    int  // keep so many of the prompt's last tokens; 0: all, -1: as many as the context holds
	ReturnIDs   bool
	TokensAsIDs bool // tokens in logprobs are written "token_id:7"
	CacheSalt   string
	RequestID   string
	Unknown     []string // fields that nobody knows
}

// Chat is what only a conversation has.
type Chat struct {
	Messages            []json.RawMessage
	Tools               []json.RawMessage
	FindCalls           bool // calls of functions in the answer are told apart from its text
	OneCall             bool // only the first
	AddGenerationPrompt bool
	Extra               map[string]json.RawMessage
}

// ParseCompletion reads the body of /v1/completions.
func ParseCompletion(body []byte, l Limits) (*Completion, *Error) {
	f, bad := newFields(body)
	if bad != nil {
		return nil, bad
	}
	c := &Completion{Logprobs: -1}
	c.Prompts = f.prompts(l)
	c.Echo = f.bool("echo", false)
	c.Logprobs = int(f.int("logprobs", -1, 0, int64(l.MaxLogprobs)))
	c.PromptLogprobs = int(f.int("prompt_logprobs", -1, 0, int64(l.MaxLogprobs)))
	c.MaxTokens = int(f.int("max_tokens", 16, 0, math.MaxInt32))
	c.shared(f, l)
	if c.MaxTokens == 0 && !c.Echo && c.PromptLogprobs < 0 {
		f.fail("max_tokens", "max_tokens is 0, which only makes sense with echo or prompt_logprobs, to score the prompt; it must be at least 1")
	}
	return c.checked(f, l)
}

// shared reads what both routes have.
func (c *Completion) shared(f *fields, l Limits) {
	c.Model = f.string("model")
	c.N = int(f.int("n", 1, 1, int64(l.MaxChoices)))
	if best := f.int("best_of", int64(c.N), math.MinInt32, math.MaxInt32); best != 1 && best != int64(c.N) {
		f.fail("best_of", "best_of is %d; this server has no best_of: leave it out, or set it to 1 or to n (%d)", best, c.N)
	}
	c.MinTokens = int(f.int("min_tokens", 0, 0, math.MaxInt32))
	c.Stop = f.strings("stop")
	c.StopIDs = f.ids("stop_token_ids")
	c.IncludeStop = f.bool("include_stop_str_in_output", false)
	c.IgnoreEOS = f.bool("ignore_eos", false)
	c.Sampling = f.sampling(l)
	c.Stream = f.bool("stream", false)
	c.streamOptions(f)
	c.KeepSpecial = !f.bool("skip_special_tokens", true)
	f.bool("spaces_between_special_tokens", true) // byte-level tokens have no spaces between them either way
	c.Truncate = int(f.int("truncate_prompt_tokens", 0, -1, math.MaxInt32))
	c.ReturnIDs = f.bool("return_token_ids", false)
	c.TokensAsIDs = f.bool("return_tokens_as_token_ids", false)
	c.CacheSalt = f.string("cache_salt")
	c.RequestID = f.string("request_id")
	f.string("session_id")
	f.bool("add_special_tokens", true) // tokenizers that add any are refused when the model is loaded
	f.int("priority", 0, math.MinInt64, math.MaxInt64)
	f.refuse()
}

// checked holds the fields against each other.
func (c *Completion) checked(f *fields, l Limits) (*Completion, *Error) {
	c.Unknown = f.unknown()
	switch {
	case f.err != nil:
		return nil, f.err
	case c.Model != "" && !slices.Contains(l.Models, c.Model):
		return nil, notFound(c.Model, l.Models)
	case len(c.Prompts)*c.N > l.MaxChoices:
		return nil, BadRequest("n", "%d prompts x n %d are more than %d choices", len(c.Prompts), c.N, l.MaxChoices)
	case c.alternatives(l) > maxAlternatives:
		return nil, BadRequest("n", "%d choices of up to %d tokens with %d log-probabilities each are more than %d in one answer; lower n, max_tokens or logprobs",
			len(c.Prompts)*c.N, c.length(l), c.Logprobs+1, maxAlternatives)
	case c.MaxTokens >= 0 && c.MinTokens > c.MaxTokens:
		return nil, BadRequest("min_tokens", "min_tokens %d > max_tokens %d", c.MinTokens, c.MaxTokens)
	case c.Stream && c.PromptLogprobs > 0:
		return nil, BadRequest("prompt_logprobs", "prompt_logprobs %d does not go with stream; use echo with logprobs", c.PromptLogprobs)
	case len(c.Stop) > maxStops || len(c.StopIDs) > maxStopTokens:
		return nil, BadRequest("stop", "%d stop strings and %d stop_token_ids; at most %d and %d", len(c.Stop), len(c.StopIDs), maxStops, maxStopTokens)
	case len(c.Stop) > 0 && !l.Text:
		return nil, BadRequest("stop", "this server has no tokenizer, so it cannot find stop strings; use stop_token_ids")
	}
	for i, s := range c.Stop {
		if s == "" || len(s) > maxStopBytes {
			return nil, BadRequest("stop", "stop string %d has %d bytes; it must have 1 to %d", i, len(s), maxStopBytes)
		}
	}
	for _, id := range c.StopIDs {
		if id < 0 || int(id) >= l.VocabSize {
			return nil, BadRequest("stop_token_ids", "stop_token_ids has %d, which is not in [0, %d)", id, l.VocabSize)
		}
	}
	if err := c.Sampling.Validate(l.VocabSize); err != nil {
		field, _, _ := strings.Cut(err.Error(), " ") // with which each of these errors begins
		return nil, BadRequest(field, "%v", err)
	}
	return c, nil
}

// maxAlternatives bounds the log-probabilities of one answer, which are in memory until it has ended, at some 100 bytes each.
const maxAlternatives = 1 << 24

func (c *Completion) alternatives(l Limits) int {
	return len(c.Prompts) * c.N * c.length(l) * (c.Logprobs + 1)
}

// length is the most tokens of one choice.
func (c *Completion) length(l Limits) int {
	if c.MaxTokens < 0 {
		return l.MaxModelLen
	}
	return min(c.MaxTokens, l.MaxModelLen)
}

func (c *Completion) streamOptions(f *fields) {
	raw, ok := f.take("stream_options")
	if !ok {
		return
	}
	if !c.Stream {
		f.fail("stream_options", "stream_options only goes with stream: true")
		return
	}
	o, bad := newFields(raw)
	if bad != nil {
		f.fail("stream_options", "stream_options must be an object")
		return
	}
	c.IncludeUsage = o.bool("include_usage", false)
	c.ContinuousUsage = o.bool("continuous_usage_stats", false)
	o.bool("include_obfuscation", false)
	if o.err != nil {
		f.fail("stream_options", "stream_options: %s", o.err.Message)
	}
	if u := o.unknown(); len(u) > 0 {
		f.fail("stream_options", "stream_options has no %q", u)
	}
}

func (f *fields) sampling(l Limits) sampling.Params {
	p := sampling.Params{
		Temperature: f.float("temperature", 1), TopP: f.float("top_p", 1), MinP: f.float("min_p", 0),
		TopK:              int(f.int("top_k", 0, -1, math.MaxInt32)),
		RepetitionPenalty: f.float("repetition_penalty", 1),
		PresencePenalty:   f.float("presence_penalty", 0), FrequencyPenalty: f.float("frequency_penalty", 0),
	}
	if p.TopP == 0 {
		f.fail("top_p", "top_p is 0; it must be in (0, 1]")
	}
	if p.RepetitionPenalty == 0 {
		f.fail("repetition_penalty", "repetition_penalty is 0; it must be greater")
	}
	if raw, ok := f.take("seed"); ok {
		seed, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil {
			f.fail("seed", "seed must be a whole number of 64 bits, not %s", clip(raw))
		}
		p.Seed = &seed
	}
	raw, ok := f.take("logit_bias")
	if !ok {
		return p
	}
	var bias map[string]float64
	if json.Unmarshal(raw, &bias) != nil {
		f.fail("logit_bias", "logit_bias must be an object of token ids and numbers")
	}
	for key, v := range bias {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || id < 0 || id >= int64(l.VocabSize) {
			f.fail("logit_bias", "logit_bias of %q, which is no token id in [0, %d)", key, l.VocabSize)
			break
		}
		p.LogitBias = append(p.LogitBias, sampling.Bias{ID: int32(id), Value: float32(v)})
	}
	slices.SortFunc(p.LogitBias, func(a, b sampling.Bias) int { return int(a.ID) - int(b.ID) })
	return p
}
