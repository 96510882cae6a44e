package checkpoint

import (
	"encoding/json"
	"fmt"
)

// TemplateTokens returns the texts of the beginning- and end-of-sequence tokens that chat templates may print, of
// tokenizer_config.json; "" for one that the folder does not name.
func (f *Folder) TemplateTokens() (bos, eos string, err error) {
	if !f.source.has(tokenizerConfigFile) {
		return "", "", nil
	}
	var j struct {
		BOS json.RawMessage `json:"bos_token"`
		EOS json.RawMessage `json:"eos_token"`
	}
	if err := f.source.readJSON(tokenizerConfigFile, &j); err != nil {
		return "", "", fmt.Errorf("checkpoint: %w", err)
	}
	for name, token := range map[string]struct {
		raw  json.RawMessage
		text *string
	}{"bos_token": {j.BOS, &bos}, "eos_token": {j.EOS, &eos}} {
		if isNull(token.raw) || json.Unmarshal(token.raw, token.text) == nil {
			continue
		}
		var added struct{ Content *string } // the form of an added token
		if json.Unmarshal(token.raw, &added) != nil || added.Content == nil {
			return "", "", fmt.Errorf("checkpoint: %s: %s is neither a string nor an added token", f.source.path(tokenizerConfigFile), name)
		}
		*token.text = *added.Content
	}
	return bos, eos, nil
}
