package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/weftgo/weft/examples/internal/safetensors"
)

// weights finds tensors in one file or in the shards that an index names.
type weights struct {
	source source
	index  map[string]string // shard of each tensor; nil if there is one file
	shards map[string]*shard // by file name
}

// shard is a weight file that is opened when it is first needed.
type shard struct {
	once sync.Once
	file *safetensors.File
	err  error
}

// openWeights looks which files there are. As the reference does, it prefers the single file to an index.
func openWeights(src source) (weights, error) {
	w := weights{source: src, shards: make(map[string]*shard)}
	if src.has(weightsFile) {
		w.shards[weightsFile] = &shard{}
		return w, nil
	}
	if !src.has(indexFile) {
		return w, fmt.Errorf("%s has neither %s nor %s: %w", src.name, weightsFile, indexFile, fs.ErrNotExist)
	}
	var j struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := src.readJSON(indexFile, &j); err != nil {
		return w, err
	}
	if len(j.WeightMap) == 0 {
		return w, fmt.Errorf("%s: no weight_map, or an empty one", src.path(indexFile))
	}
	w.index = j.WeightMap
	for name, file := range w.index {
		if !fs.ValidPath(file) || file == "." {
			return w, fmt.Errorf("%s: tensor %q is in %q, which is not a file of the folder", src.path(indexFile), name, file)
		}
		if w.shards[file] == nil {
			w.shards[file] = &shard{}
		}
	}
	return w, nil
}

var errNoTensor = errors.New("is missing")

// find returns the tensor, or errNoTensor wrapped with where it was looked for.
func (w *weights) find(name string) (safetensors.Tensor, error) {
	file := weightsFile
	if w.index != nil {
		var ok bool
		if file, ok = w.index[name]; !ok {
			return safetensors.Tensor{}, fmt.Errorf("%s: tensor %q %w", w.source.path(indexFile), name, errNoTensor)
		}
	}
	s := w.shards[file]
	s.once.Do(func() { s.file, s.err = w.source.openWeightFile(file) })
	if s.err != nil {
		if w.index != nil {
			return safetensors.Tensor{}, fmt.Errorf("tensor %q is in shard %s by the index: %w", name, file, s.err)
		}
		return safetensors.Tensor{}, s.err
	}
	t, ok := s.file.Tensor(name)
	if !ok {
		where := ""
		if w.index != nil {
			where = fmt.Sprintf(", where %s puts it", indexFile)
		}
		return t, fmt.Errorf("%s: tensor %q %w%s", w.source.path(file), name, errNoTensor, where)
	}
	return t, nil
}

// has says whether the folder claims to have the tensor, without opening a shard of an index for it.
func (w *weights) has(name string) bool {
	if w.index != nil {
		_, ok := w.index[name]
		return ok
	}
	_, err := w.find(name)
	return err == nil
}

// names returns the shards' file names in order.
func (w *weights) names() []string {
	out := make([]string, 0, len(w.shards))
	for name := range w.shards {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func (w *weights) close() error {
	var errs []error
	for _, name := range w.names() {
		s := w.shards[name]
		s.once.Do(func() { s.err = fs.ErrClosed })
		if s.file != nil {
			errs = append(errs, s.file.Close())
			s.file, s.err = nil, fs.ErrClosed
		}
	}
	return errors.Join(errs...)
}
