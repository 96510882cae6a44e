package nvrtc

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/singleflight"

	"github.com/weftgo/weft/internal/envknob"
)

var cacheDir = envknob.Register("WEFT_CACHE_DIR", "folder for compiled kernels; the default is weft below the user's cache folder")

// magic begins every file of the cache; then come the SHA-256 of the machine code and the machine code.
const magic = "weftcub1"

// Cache keeps compiled programs in a folder. Any goroutine and any process may use one folder at a time.
type Cache struct {
	Dir    string // empty: nothing is kept
	flight singleflight.Group
}

// DefaultDir returns the folder that Cubin uses; empty when the user has none.
func DefaultDir() string {
	if dir, _ := cacheDir.Get(); dir != "" {
		return filepath.Join(dir, "nvrtc")
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "weft", "nvrtc")
}

var shared Cache // of Cubin; its Dir is looked up at each call, because a test may change the variable

// Cubin returns the machine code of p from the default cache, compiling it when it is not there.
func Cubin(p Program) ([]byte, error) {
	image, _, err := shared.cubin(DefaultDir(), p)
	return image, err
}

// Cubin returns the machine code of p, and whether it was in the cache. Callers that want the same program at once wait for
// one compilation. The caller may keep the bytes but not change them.
func (c *Cache) Cubin(p Program) (image []byte, hit bool, err error) { return c.cubin(c.Dir, p) }

func (c *Cache) cubin(dir string, p Program) ([]byte, bool, error) {
	if err := Init(); err != nil {
		return nil, false, err
	}
	type result struct {
		image []byte
		hit   bool
	}
	key := p.key(loaded.build)
	v, err, _ := c.flight.Do(dir+"\x00"+key, func() (any, error) {
		path := filepath.Join(dir, key+".cubin")
		if dir != "" {
			if image, err := read(path); err == nil {
				return result{image, true}, nil
			}
		}
		image, err := Compile(p)
		if err != nil {
			return nil, err
		}
		if dir != "" {
			_ = write(path, image) // a folder that cannot be written only costs time
		}
		return result{image, false}, nil
	})
	if err != nil {
		return nil, false, err
	}
	return v.(result).image, v.(result).hit, nil
}

// read returns the content of a file whose sum is right.
func read(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return unwrap(b)
}

func unwrap(b []byte) ([]byte, error) {
	const head = len(magic) + sha256.Size
	if len(b) <= head || string(b[:len(magic)]) != magic {
		return nil, errors.New("not a file of this cache")
	}
	image := b[head:]
	if sum := sha256.Sum256(image); !bytes.Equal(sum[:], b[len(magic):head]) {
		return nil, fmt.Errorf("the sum of %d bytes does not match", len(image))
	}
	return image, nil
}

func wrap(image []byte) []byte {
	sum := sha256.Sum256(image)
	return append(append([]byte(magic), sum[:]...), image...)
}

// write makes the file appear whole or not at all.
func write(path string, image []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	_, err = f.Write(wrap(image))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
