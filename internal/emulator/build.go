package emulator

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sync/errgroup"
)

//go:embed module.h nvrtc driver
var sources embed.FS

// ErrUnavailable is why there is no emulator here, wrapped with what is missing.
var ErrUnavailable = errors.New("the GPU emulator needs Linux on amd64 and g++ (or another C++17 compiler in CXX)")

// Libraries are the stand-ins, ready to be opened.
type Libraries struct {
	CUDA  string // the file of libcuda
	NVRTC string // the file of libnvrtc
	Cache string // a folder for what is compiled and measured with them, which is of no use with a GPU
}

// Env returns the variables that make weft use the libraries, as NAME=value.
func (l Libraries) Env() []string {
	return []string{"WEFT_CUDA_LIB=" + l.CUDA, "WEFT_NVRTC_LIB=" + l.NVRTC, "WEFT_CACHE_DIR=" + l.Cache}
}

// Build compiles the libraries into a folder below dir (empty: the user's cache folder) that is named after what they are made of,
// or finds them there. It takes some ten seconds of a core the first time. Any number of processes may call it at once.
func Build(dir string) (Libraries, error) {
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return Libraries{}, err
		}
		dir = filepath.Join(cache, "weft", "emulator")
	}
	compiler, id, err := identity()
	if err != nil {
		return Libraries{}, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return Libraries{}, err
	}
	home := filepath.Join(dir, id)
	l := Libraries{CUDA: filepath.Join(home, "libcuda.so.1"), NVRTC: filepath.Join(home, "libnvrtc.so.13"), Cache: filepath.Join(home, "cache")}
	if _, err := os.Stat(l.NVRTC); err == nil {
		return l, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Libraries{}, err
	}
	temp, err := os.MkdirTemp(dir, ".building-*")
	if err != nil {
		return Libraries{}, err
	}
	if err := errors.Join(os.CopyFS(temp, sources), compile(compiler, temp, id)); err != nil {
		return Libraries{}, errors.Join(err, os.RemoveAll(temp))
	}
	// The folder appears whole or not at all; another process may have been faster.
	if err := os.Rename(temp, home); err != nil {
		if _, there := os.Stat(l.NVRTC); there != nil {
			return Libraries{}, errors.Join(err, os.RemoveAll(temp))
		}
		return l, os.RemoveAll(temp)
	}
	return l, nil
}

// identity returns the compiler and a name for what it would make.
func identity() (compiler, id string, err error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "", "", fmt.Errorf("%s/%s: %w", runtime.GOOS, runtime.GOARCH, ErrUnavailable)
	}
	compiler = os.Getenv("CXX")
	if compiler == "" {
		compiler = "g++"
	}
	version, err := exec.Command(compiler, "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("%s --version: %w: %w", compiler, err, ErrUnavailable)
	}
	sum := sha256.New()
	sum.Write(version)
	err = fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := sources.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(b), b)
		return err
	})
	return compiler, hex.EncodeToString(sum.Sum(nil)[:8]), err
}

// compile makes both libraries and the engine's object file in home, which holds the sources.
func compile(compiler, home, id string) error {
	number, err := strconv.ParseUint(id[:8], 16, 32)
	if err != nil {
		return err
	}
	common := []string{"-std=c++17", "-fPIC", "-fvisibility=hidden"}
	var all errgroup.Group
	all.SetLimit(2)
	for _, c := range []struct {
		out, in string
		flags   []string
	}{
		// The engine goes into every module; nothing of it is seen outside.
		{"engine.o", "nvrtc/engine", []string{"-O2", "-march=x86-64-v2", "-fno-exceptions", "-r", "-nostdlib"}},
		{"libnvrtc.so.13", "nvrtc", []string{"-O1", "-shared", fmt.Sprintf("-DWEFT_EMULATOR_ID=%d", number>>2)}},
		{"libcuda.so.1", "driver", []string{"-O2", "-shared", "-ldl", "-lpthread"}},
	} {
		all.Go(func() error {
			files, err := filepath.Glob(filepath.Join(home, c.in, "*.cpp"))
			if err != nil {
				return err
			}
			args := append(append(append(append([]string{}, common...), c.flags...), files...), "-o", filepath.Join(home, c.out))
			if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
				return fmt.Errorf("emulator: %s: %w\n%s", c.out, err, out)
			}
			return nil
		})
	}
	return all.Wait()
}
