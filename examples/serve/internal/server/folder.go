package server

import (
	"fmt"
	"path/filepath"

	"github.com/weftgo/weft/examples/internal/chat"
	"github.com/weftgo/weft/examples/internal/checkpoint"
)

// Read takes what a model folder says: vocabulary, tokenizer, chat template, and a name unless there is one.
func (c *Config) Read(folder *checkpoint.Folder) error {
	c.ReadSizes(folder)
	if !folder.HasTokenizer() {
		return fmt.Errorf("%s has no tokenizer.json", folder.Name())
	}
	var err error
	if c.Tokenizer, err = folder.Tokenizer(); err != nil {
		return err
	}
	source, err := folder.ChatTemplate()
	if err != nil || source == "" {
		return err
	}
	bos, eos, err := folder.TemplateTokens()
	if err != nil {
		return err
	}
	if c.Template, err = chat.Parse(source, bos, eos); err != nil {
		return fmt.Errorf("%s: %w", folder.Name(), err)
	}
	return nil
}

// ReadSizes is Read without tokenizer and template, for a server of ids.
func (c *Config) ReadSizes(folder *checkpoint.Folder) {
	c.Root, c.VocabSize = folder.Name(), folder.Config.VocabSize
	if len(c.Models) == 0 {
		c.Models = []string{filepath.Base(folder.Name())}
	}
}
