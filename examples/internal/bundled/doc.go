// Package bundled carries the judge's model inside the binary.
//
// The judge is one file to copy and run: its weights, tokenizer and lexicon are
// embedded, so nothing is downloaded and no path is given.
//
//	bundled/
//	  judge-moe/      the Hugging Face folder that FS returns
//	    config.json  generation_config.json  tokenizer_config.json
//	    tokenizer.json                       byte-level BPE, 2,048 ids
//	    model.safetensors                    14.7 MB, bf16, 423 tensors
//	    README.md                            task, sizes, measured accuracy
//	  make/           how it was made: scripts, cases, and the lexicon
//	    lexicon.json                         what Lexicon returns
//
// Embedded bytes lie in the read-only part of the binary and are paged in when
// they are read. [fs.ReadFile] copies them; read model.safetensors once and
// share it between the ranks.
package bundled
