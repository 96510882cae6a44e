package api

// Response is the answer of either route without streaming, or one chunk of a stream.
type Response struct {
	ID                string   `json:"id"`
	Object            string   `json:"object"`
	Created           int64    `json:"created"`
	Model             string   `json:"model"`
	Choices           []Choice `json:"choices"` // never nil
	Usage             *Usage   `json:"usage,omitempty"`
	SystemFingerprint *string  `json:"system_fingerprint"`

	// Of chats only: completions have these in the choice.
	PromptLogprobs []PromptLogprob `json:"prompt_logprobs,omitempty"`
	PromptTokenIDs []int32         `json:"prompt_token_ids,omitempty"`
}

// Names of Response.Object.
const (
	ObjectCompletion = "text_completion"
	ObjectChat       = "chat.completion"
	ObjectChatChunk  = "chat.completion.chunk"
)

// Choice is one answer, or the next piece of it.
type Choice struct {
	Index    int      `json:"index"`
	Text     *string  `json:"text,omitempty"`    // completions
	Message  *Message `json:"message,omitempty"` // chats
	Delta    *Delta   `json:"delta,omitempty"`   // streamed chats
	Logprobs any      `json:"logprobs"`          // *Logprobs, *ChatLogprobs or nil

	FinishReason *string `json:"finish_reason"` // stop, length, abort, tool_calls; null while it goes on
	StopReason   any     `json:"stop_reason"`   // the stop string or stop token id that hit; null for the model's own end

	PromptLogprobs []PromptLogprob `json:"prompt_logprobs,omitempty"`
	TokenIDs       []int32         `json:"token_ids,omitempty"`
	PromptTokenIDs []int32         `json:"prompt_token_ids,omitempty"`
}

// Message is a whole answer.
type Message struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"` // null if there are only calls
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
}

// Delta is what a chunk adds to a message.
type Delta struct {
	Role      string     `json:"role,omitempty"` // in the first
	Content   *string    `json:"content,omitempty"`
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
}

// ToolCall is a call of a function.
type ToolCall struct {
	Index    *int     `json:"index,omitempty"` // among the message's calls; only in a Delta
	ID       string   `json:"id"`
	Type     string   `json:"type"` // "function"
	Function Function `json:"function"`
}

// Function is what is called, with a JSON object as text.
type Function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Usage counts tokens of a request.
type Usage struct {
	PromptTokens     int           `json:"prompt_tokens"`
	TotalTokens      int           `json:"total_tokens"`
	CompletionTokens int           `json:"completion_tokens"`
	Details          PromptDetails `json:"prompt_tokens_details"`
}

// PromptDetails tells how many tokens of the prompt came from the prefix cache.
type PromptDetails struct {
	CachedTokens int `json:"cached_tokens"`
}
