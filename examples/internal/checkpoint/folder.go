package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/weftgo/weft/examples/internal/safetensors"
	"github.com/weftgo/weft/examples/internal/tokenizer"
)

// The files of a folder.
const (
	configFile          = "config.json"
	generationFile      = "generation_config.json"
	tokenizerFile       = "tokenizer.json"
	tokenizerConfigFile = "tokenizer_config.json"
	templateFile        = "chat_template.jinja"
	weightsFile         = "model.safetensors"
	indexFile           = "model.safetensors.index.json"
)

// maxJSONBytes is the largest JSON file that is read here; the index of a model of 100,000 tensors has 10 MB.
const maxJSONBytes = 64 << 20

// Folder is an open model folder. Any number of goroutines may use it at once, but for Close.
type Folder struct {
	Config *Config

	name    string
	source  source
	weights weights
	eos     []int32
}

// source is where the files of a folder come from.
type source struct {
	fsys fs.FS
	dir  string // of files that are mapped; "" if fsys is not on disk
	name string // of the folder, in errors
}

// Open opens the model folder at dir: it reads config.json, and of the weights only which file holds what.
func Open(dir string) (*Folder, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("checkpoint: %s is not a folder", dir)
	}
	return open(source{fsys: os.DirFS(dir), dir: dir, name: dir})
}

// OpenFS opens the model folder that fsys is, such as an embedded one (see fs.Sub). Weight files are read into
// memory when first used. The name appears in errors.
func OpenFS(fsys fs.FS, name string) (*Folder, error) {
	return open(source{fsys: fsys, name: name})
}

func open(src source) (*Folder, error) {
	data, err := src.read(configFile)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	f := &Folder{name: src.name, source: src}
	if f.Config, err = ParseConfig(data, src.path(configFile)); err != nil {
		return nil, err
	}
	if err := f.readEOS(); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if f.weights, err = openWeights(src); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return f, nil
}

// Name returns the folder's path, or the name given to OpenFS.
func (f *Folder) Name() string { return f.name }

// EOS returns the token ids that end a completion: those of generation_config.json, else those of config.json; none
// if neither has any. Ids beyond the vocabulary are left out.
func (f *Folder) EOS() []int32 { return slices.Clone(f.eos) }

// HasTokenizer says whether the folder has a tokenizer.json.
func (f *Folder) HasTokenizer() bool { return f.source.has(tokenizerFile) }

// Tokenizer reads the folder's tokenizer.json, anew with each call. A folder without one gives fs.ErrNotExist.
func (f *Folder) Tokenizer() (*tokenizer.Tokenizer, error) {
	t, err := tokenizer.LoadFS(f.source.fsys, tokenizerFile)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", f.name, err)
	}
	if t.VocabSize() > f.Config.VocabSize {
		return nil, fmt.Errorf("checkpoint: %s has %d tokens > vocab_size %d of %s",
			f.source.path(tokenizerFile), t.VocabSize(), f.Config.VocabSize, configFile)
	}
	return t, nil
}

// ChatTemplate returns the Jinja source of the chat template, of chat_template.jinja or else of
// tokenizer_config.json; "" if the folder has none. Of several named templates it is the one named default.
func (f *Folder) ChatTemplate() (string, error) {
	if f.source.has(templateFile) {
		data, err := f.source.read(templateFile)
		if err != nil {
			return "", fmt.Errorf("checkpoint: %w", err)
		}
		return string(data), nil
	}
	if !f.source.has(tokenizerConfigFile) {
		return "", nil
	}
	var j struct {
		ChatTemplate json.RawMessage `json:"chat_template"`
	}
	if err := f.source.readJSON(tokenizerConfigFile, &j); err != nil {
		return "", fmt.Errorf("checkpoint: %w", err)
	}
	if isNull(j.ChatTemplate) {
		return "", nil
	}
	var text string
	if json.Unmarshal(j.ChatTemplate, &text) == nil {
		return text, nil
	}
	var named []struct{ Name, Template string }
	if json.Unmarshal(j.ChatTemplate, &named) == nil {
		for _, t := range named {
			if t.Name == "default" {
				return t.Template, nil
			}
		}
	}
	return "", fmt.Errorf("checkpoint: %s: chat_template is neither a string nor a list with one named default",
		f.source.path(tokenizerConfigFile))
}

// Close unmaps the weight files; see safetensors.File.Close. Nobody may use the Folder at the same time.
func (f *Folder) Close() error { return f.weights.close() }

func (f *Folder) readEOS() error {
	f.setEOS(f.Config.EOSTokenIDs)
	if !f.source.has(generationFile) {
		return nil
	}
	var j struct {
		EOSTokenID json.RawMessage `json:"eos_token_id"`
	}
	if err := f.source.readJSON(generationFile, &j); err != nil {
		return err
	}
	ids, err := tokenIDs(j.EOSTokenID)
	if err != nil {
		return fmt.Errorf("%s: %w", f.source.path(generationFile), err)
	}
	if len(ids) > 0 {
		f.setEOS(ids)
	}
	return nil
}

// setEOS leaves out ids beyond the vocabulary, which can never come: models cut down from larger ones keep them.
func (f *Folder) setEOS(ids []int32) {
	f.eos = slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return int(id) >= f.Config.VocabSize })
}

func (s source) path(file string) string {
	if s.dir != "" {
		return filepath.Join(s.dir, file)
	}
	return path.Join(s.name, file)
}

func (s source) has(file string) bool {
	info, err := fs.Stat(s.fsys, file)
	return err == nil && info.Mode().IsRegular()
}

// read reads a small file.
func (s source) read(file string) ([]byte, error) {
	r, err := s.fsys.Open(file)
	if err != nil {
		return nil, s.wrap(file, err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxJSONBytes+1))
	if err != nil {
		return nil, s.wrap(file, err)
	}
	if len(data) > maxJSONBytes {
		return nil, fmt.Errorf("%s: more than %d bytes", s.path(file), maxJSONBytes)
	}
	return data, nil
}

// wrap names the folder's file instead of the path inside the fs.FS.
func (s source) wrap(file string, err error) error {
	var inner *fs.PathError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return fmt.Errorf("%s: %w", s.path(file), err)
}

func (s source) readJSON(file string, v any) error {
	data, err := s.read(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", s.path(file), jsonError(err, len(data)))
	}
	return nil
}

// openWeightFile maps a file on disk, or reads one of an fs.FS.
func (s source) openWeightFile(file string) (*safetensors.File, error) {
	if s.dir != "" {
		return safetensors.Open(s.path(file))
	}
	data, err := fs.ReadFile(s.fsys, file)
	if err != nil {
		return nil, s.wrap(file, err)
	}
	return safetensors.Parse(data, s.path(file))
}
