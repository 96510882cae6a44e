package dl

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weftgo/weft/internal/envknob"
)

// Wheels is the variable that names folders of unpacked Python wheels.
var Wheels = envknob.Register("WEFT_WHEELS", "folders (separated by :) that hold nvidia/*/lib, as pip install --target makes them")

// override returns the paths that the override variable means; nil when it is not set.
func (s Spec) override() ([]string, error) {
	if s.Env.Name == "" {
		return nil, nil
	}
	v, err := s.Env.Get()
	if v == "" || err != nil {
		return nil, err
	}
	if info, err := os.Stat(v); err == nil && info.IsDir() {
		return s.files(v), nil
	}
	return []string{v}, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// toolkitDirs returns the library folders of CUDA toolkits.
func toolkitDirs() []string {
	var dirs []string
	for _, root := range []string{os.Getenv("CUDA_HOME"), os.Getenv("CUDA_PATH"), "/usr/local/cuda"} {
		if root == "" {
			continue
		}
		targets, _ := filepath.Glob(filepath.Join(root, "targets", "*", "lib"))
		for _, dir := range append([]string{filepath.Join(root, "lib64"), filepath.Join(root, "lib")}, targets...) {
			if exists(dir) || dir == filepath.Join(root, "lib64") {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// wheelDirs returns the folders nvidia/*/lib of every site-packages folder that is known.
func (s Spec) wheelDirs() []string {
	if !s.Wheels {
		return nil
	}
	roots := filepath.SplitList(os.Getenv(Wheels.Name))
	for _, env := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if prefix := os.Getenv(env); prefix != "" {
			roots = append(roots, sitePackages(prefix)...)
			roots = append(roots, filepath.Join(prefix, "lib")) // conda keeps its own libraries here
		}
	}
	python, err := exec.LookPath("python3")
	if err == nil {
		roots = append(roots, sitePackages(filepath.Dir(filepath.Dir(python)))...)
		roots = append(roots, pythonPath(python)...)
	}
	var dirs []string
	for _, root := range roots {
		found, _ := filepath.Glob(filepath.Join(root, "nvidia", "*", "lib"))
		if found == nil && slices.ContainsFunc(s.Sonames, func(name string) bool { return exists(filepath.Join(root, name)) }) {
			found = []string{root}
		}
		dirs = append(dirs, found...)
	}
	return dirs
}

func sitePackages(prefix string) []string {
	var out []string
	for _, pattern := range []string{"lib/python3*/site-packages", "lib/python3*/dist-packages"} {
		found, _ := filepath.Glob(filepath.Join(prefix, pattern))
		out = append(out, found...)
	}
	return out
}

var pythonPaths sync.Map // python3's path -> []string

// pythonPath asks a python3 for its module folders: behind a version manager's shim they cannot be guessed. A python3
// that does not answer within seconds has none.
func pythonPath(python string) []string {
	if v, ok := pythonPaths.Load(python); ok {
		return v.([]string)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", `import site, sys; print("\n".join(p for p in sys.path + [site.getusersitepackages()] if "-packages" in p))`)
	cmd.WaitDelay = time.Second
	out, _ := cmd.Output()
	paths := strings.Fields(string(out))
	pythonPaths.Store(python, paths)
	return paths
}
