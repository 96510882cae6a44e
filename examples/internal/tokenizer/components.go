package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// component is a normalizer, pre-tokenizer, post-processor or decoder of the file, whichever its type says.
type component struct {
	Type           string            `json:"type"`
	Normalizers    []json.RawMessage `json:"normalizers"`
	Pretokenizers  []json.RawMessage `json:"pretokenizers"`
	Processors     []json.RawMessage `json:"processors"`
	Decoders       []json.RawMessage `json:"decoders"`
	AddPrefixSpace *bool             `json:"add_prefix_space"`
	UseRegex       *bool             `json:"use_regex"`
	Behavior       string            `json:"behavior"`
	Invert         bool              `json:"invert"`
	Pattern        struct {
		Regex  *string `json:"Regex"`
		String *string `json:"String"`
	} `json:"pattern"`
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// maxNesting bounds sequences within sequences.
const maxNesting = 8

// flatten returns the components of raw with sequences replaced by their parts.
func flatten(raw json.RawMessage, parts func(component) []json.RawMessage, depth int) ([]component, error) {
	if isNull(raw) {
		return nil, nil
	}
	if depth > maxNesting {
		return nil, fmt.Errorf("sequences nested more than %d deep", maxNesting)
	}
	var c component
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, jsonError(err, len(raw))
	}
	if c.Type != "Sequence" {
		return []component{c}, nil
	}
	var out []component
	for i, part := range parts(c) {
		p, err := flatten(part, parts, depth+1)
		if err != nil {
			return nil, fmt.Errorf("sequence, part %d: %w", i, err)
		}
		out = append(out, p...)
	}
	return out, nil
}

func (t *Tokenizer) setNormalizer(raw json.RawMessage) error {
	parts, err := flatten(raw, func(c component) []json.RawMessage { return c.Normalizers }, 0)
	if err != nil {
		return err
	}
	for _, c := range parts {
		if c.Type != "NFC" {
			return fmt.Errorf("type %q is not supported, want NFC or null", c.Type)
		}
		t.normalize = nfc // twice is once
	}
	return nil
}

// parseSplits returns the splitters of a pre-tokenizer, which must end in ByteLevel: without it the vocabulary is not
// one of bytes.
func parseSplits(raw json.RawMessage) ([]splitter, error) {
	parts, err := flatten(raw, func(c component) []json.RawMessage { return c.Pretokenizers }, 0)
	if err != nil {
		return nil, err
	}
	var out []splitter
	for i, c := range parts {
		switch c.Type {
		case "Split":
			s, err := parseSplit(c)
			if err != nil {
				return nil, fmt.Errorf("part %d, Split: %w", i, err)
			}
			out = append(out, s)
		case "ByteLevel":
			if i != len(parts)-1 {
				return nil, fmt.Errorf("part %d, ByteLevel, is followed by %s; it must be the last", i, parts[i+1].Type)
			}
			if c.AddPrefixSpace == nil || *c.AddPrefixSpace {
				out = append(out, splitter{prefix: true})
			}
			if c.UseRegex == nil || *c.UseRegex {
				re, err := compile(gpt2Pattern)
				if err != nil {
					return nil, err
				}
				out = append(out, splitter{pattern: re})
			}
			return out, nil
		default:
			return nil, fmt.Errorf("part %d: type %q is not supported, want Split or ByteLevel", i, c.Type)
		}
	}
	return nil, errors.New("no ByteLevel at its end: only byte-level vocabularies are supported")
}

func parseSplit(c component) (splitter, error) {
	if c.Pattern.Regex == nil {
		if c.Pattern.String != nil {
			return splitter{}, fmt.Errorf("pattern String %q is not supported, want Regex", *c.Pattern.String)
		}
		return splitter{}, errors.New("no pattern Regex")
	}
	isolated := c.Behavior == "Isolated"
	if !isolated && !(c.Behavior == "Removed" && c.Invert) {
		return splitter{}, fmt.Errorf("behavior %q with invert %v is not supported, want Isolated, or Removed with invert",
			c.Behavior, c.Invert)
	}
	if *c.Pattern.Regex == qwenPattern { // its matches leave nothing between them
		return splitter{qwen: true}, nil
	}
	re, err := compile(*c.Pattern.Regex)
	if err != nil {
		return splitter{}, err
	}
	if isolated {
		return splitter{pattern: re}, nil
	}
	return splitter{only: re}, nil
}

// checkByteLevel accepts ByteLevel alone, which as a post-processor only moves offsets; null if the caller allows it.
func checkByteLevel(raw json.RawMessage, nullable bool) error {
	parts, err := flatten(raw, func(c component) []json.RawMessage { return append(c.Processors, c.Decoders...) }, 0)
	if err != nil {
		return err
	}
	if len(parts) == 0 && !nullable {
		return errors.New("is missing, want ByteLevel")
	}
	for _, c := range parts {
		if c.Type != "ByteLevel" {
			return fmt.Errorf("type %q is not supported, want ByteLevel", c.Type)
		}
	}
	return nil
}
