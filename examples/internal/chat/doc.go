// Package chat turns a conversation into a prompt with the chat template of a model folder, as Hugging Face's
// apply_chat_template does.
//
//	messages (JSON) + template (Jinja) ── Render ──> "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
//
// Templates come with models, so they are treated as untrusted text: they see the conversation and nothing else. Statements that
// read files (include, import, extends) do not exist here, and a render ends after MaxOutput bytes or MaxTime.
//
// JSON objects keep the order of their keys, so that tool schemas come out of the tojson filter as they came in, in the
// form of Python's json.dumps.
package chat
