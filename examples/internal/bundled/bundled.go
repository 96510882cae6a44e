package bundled

import (
	"embed"
	"io/fs"
)

// Name is the name of the bundled model and of its folder.
const Name = "judge-moe"

//go:embed judge-moe
var model embed.FS

//go:embed make/lexicon.json
var lexicon string

// FS returns the model folder: config.json, tokenizer.json, model.safetensors
// and the rest lie at its root, as in a Hugging Face folder on disk.
func FS() fs.FS {
	root, err := fs.Sub(model, Name)
	if err != nil {
		panic("bundled: " + err.Error()) // Name is a valid path, or nothing builds
	}
	return root
}

// Lexicon returns the JSON text of the word lists and sentence templates from
// which the judge's prompts are made (package prompts reads it).
func Lexicon() string { return lexicon }
