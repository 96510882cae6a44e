package api

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// neutral are the values with which a field that the server lacks asks for nothing. null always does.
var neutral = map[string][]string{
	"suffix":            {`""`},
	"use_beam_search":   {"false"},
	"length_penalty":    {"1", "1.0"},
	"early_stopping":    {"false"},
	"bad_words":         {"[]"},
	"allowed_token_ids": {},
	"prompt_embeds":     {},
	"response_format":   {`{"type":"text"}`},

	"structured_outputs": {}, "guided_json": {}, "guided_regex": {}, "guided_choice": {}, "guided_grammar": {},
	"guided_decoding_backend": {}, "guided_whitespace_pattern": {}, "structural_tag": {},

	"logits_processors": {"[]"}, "kv_transfer_params": {}, "vllm_xargs": {"{}"}, "mm_processor_kwargs": {}, "media_io_kwargs": {},
	"return_logprobs_mode": {}, "logprobs_mode": {}, "repetition_detection": {}, "thinking_token_budget": {},

	// Chat.
	"functions": {"[]"}, "function_call": {`"none"`}, "chat_template": {}, "documents": {"[]"}, "continue_final_message": {"false"},
	"modalities": {`["text"]`}, "audio": {}, "prediction": {}, "web_search_options": {}, "reasoning_effort": {`"none"`},
	"include_reasoning": {"true"}, "verbosity": {`"medium"`}, "store": {"false"},
}

// ignorable have no bearing on the answer: names and bookkeeping, which any server may drop.
var ignorable = []string{"user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier"}

// refuse fails for what the server lacks.
func (f *fields) refuse() {
	for _, name := range ignorable {
		f.take(name)
	}
	var lacking []string
	for name, values := range neutral {
		raw, ok := f.take(name)
		if !ok {
			continue
		}
		var compact bytes.Buffer
		if json.Compact(&compact, raw) != nil || !slices.Contains(values, compact.String()) {
			lacking = append(lacking, name)
		}
	}
	if len(lacking) > 0 {
		slices.Sort(lacking)
		advice := "is not supported by this server; leave it out"
		if len(lacking) > 1 {
			advice = "are not supported by this server; leave them out"
		}
		f.fail(lacking[0], "%s %s", strings.Join(lacking, ", "), advice)
	}
}
