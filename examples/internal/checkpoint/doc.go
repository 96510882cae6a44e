// Package checkpoint reads a Hugging Face model folder of the Qwen3-MoE architecture.
//
//	folder
//	├─ config.json             ─> Config: sizes, checked against each other
//	├─ generation_config.json  ─> end-of-sequence ids (optional)
//	├─ tokenizer.json          ─> Tokenizer (optional)
//	├─ tokenizer_config.json   ─> chat template (optional)
//	├─ model.safetensors       ─> tensors, in one file or
//	└─ model.safetensors.index.json + model-0000N-of-0000M.safetensors
//
// [Open] maps files of a folder on disk, [OpenFS] reads them from an fs.FS, such as an embedded model. Weight files
// are opened when a tensor of theirs is first asked for, and pages of a mapped file are read when first touched, so
// that a rank pays for its own slices only. Ranks of one process share one [Folder].
//
// What a file asks for that the engine does not do (other architectures, quantized weights, scaled rotary positions,
// sliding windows, biases) is refused by name when the folder is opened; a missing or wrong tensor when it is asked
// for, or all at once by [Folder.Validate].
package checkpoint
