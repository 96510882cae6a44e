// Package tokenizer turns text into the token ids of a byte-level BPE tokenizer.json and back.
//
// It reads the files of Hugging Face's tokenizers library as far as Qwen2 and Qwen3 models, and the GPT-2 family in
// general, use them, and gives the same ids. What a file asks for beyond that is an error when it is loaded, never
// different ids later.
//
//	text ─> added tokens ─> NFC ─> pieces ─> bytes ─> merges ─> ids
//	        "<|im_end|>"    é      " the"    Ġ t h e  Ġt he     262
//	                               split     each byte is       lowest rank
//	                               pattern   one start token    first
//
// Added tokens are cut out of the text first. What lies between them is normalised, split into pieces by the
// pattern of the file, and each piece is merged on its own. Qwen's pattern has a scanner written by hand; other
// patterns run on a backtracking regular expression engine.
//
// [Tokenizer.Decode] gives the text of ids. A [Stream] does so token by token and holds back the bytes of a
// character that is not complete yet, so that the pieces it returns add up to what Decode returns.
package tokenizer
