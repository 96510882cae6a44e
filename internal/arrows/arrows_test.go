package arrows

import (
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/weftgo/weft"

var update = flag.Bool("update", false, "rewrite testdata/arrows.golden")

// layers orders the packages: a package may import only packages of lower layers, or of its own folder tree. The longest
// prefix counts.
var layers = map[string]int{
	"dtype":    0,
	"internal": 0,
	"routing":  1,
	"plan":     1,
	"comm":     1,
	"trace":    2,
	"symm":     3,
	"ep":       2,
	"cuda":     2,

	"internal/nvrtc":     2,
	"internal/cublaslt":  3,
	"internal/gpurank":   3,
	"internal/lastwords": 3,
	"internal/gputest":   3,
	"internal/proctest":  4, // of tests

	"internal/kernels": 3,
	"comm/commtest":    3,
	"comm/local":       3,
	"comm/lockstep":    3,
	"comm/rendezvous":  2,
	"comm/nodes":       4,
	"comm/p2p":         4,
	"nccl":             4,
	"nvshmem":          4,
	"agrs":             4,
	"alltoall":         4,
	"moe":              4,
	"ep/eptest":        4,

	".":          5,
	"topo":       5,
	"cmd":        6,
	"examples":   6,
	"benchmarks": 6,
}

// strangers may not import each other, whatever their layers.
var strangers = [][2]string{
	{"agrs", "alltoall"}, {"alltoall", "agrs"}, {"moe", "agrs"}, {"moe", "alltoall"}, {"routing", "comm"},
	{"routing", "dtype"}, {"plan", "comm"},
}

// only lists who may import a thing outside the module.
var only = map[string][]string{
	"C":                             {"internal/dl", "internal/nvrtc", "internal/cublaslt", "cuda", "nccl/internal/calls", "nvshmem", "topo"},
	"github.com/NVIDIA/go-nvml/pkg": {"topo"},
}

func TestArrows(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	imports := scan(t, root)
	var lines []string
	for pkg, deps := range imports {
		var inner []string
		for dep := range deps {
			checkOutside(t, pkg, dep)
			if dep != module && !strings.HasPrefix(dep, module+"/") {
				continue
			}
			to := strings.TrimPrefix(strings.TrimPrefix(dep, module), "/")
			if to == "" {
				to = "."
			}
			inner = append(inner, to)
			checkArrow(t, pkg, to)
		}
		sort.Strings(inner)
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s -> %s", pkg, strings.Join(inner, " "))))
	}
	sort.Strings(lines)
	got := strings.Join(lines, "\n") + "\n"
	golden := filepath.Join("testdata", "arrows.golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "the arrows changed; if that is meant: go test ./internal/arrows -update")
}

// scan returns the imports of every package folder, test files left out.
func scan(t *testing.T, root string) map[string]map[string]bool {
	imports := map[string]map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			_, err := os.Stat(filepath.Join(file, "go.mod"))
			if name == "testdata" || file != root && (err == nil || strings.HasPrefix(name, ".") || name == "build") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(rel)
		if imports[pkg] == nil {
			imports[pkg] = map[string]bool{}
		}
		for _, spec := range f.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			imports[pkg][p] = true
		}
		return nil
	}))
	require.NotEmpty(t, imports)
	return imports
}

func layer(t *testing.T, pkg string) (prefix string, n int) {
	for p := pkg; ; p = path.Dir(p) {
		if n, ok := layers[p]; ok && (p != "." || pkg == ".") {
			return p, n
		}
		if p == "." {
			t.Errorf("package %s has no layer; add it to layers", pkg)
			return pkg, -1
		}
	}
}

func checkArrow(t *testing.T, from, to string) {
	fromPrefix, a := layer(t, from)
	toPrefix, b := layer(t, to)
	if a < b || a == b && fromPrefix != toPrefix {
		t.Errorf("%s (layer %d) imports %s (layer %d): arrows only go down", from, a, to, b)
	}
	for _, s := range strangers {
		if fromPrefix == s[0] && toPrefix == s[1] {
			t.Errorf("%s must not import %s", from, to)
		}
	}
}

func checkOutside(t *testing.T, pkg, dep string) {
	for prefix, allowed := range only {
		if (dep == prefix || strings.HasPrefix(dep, prefix+"/")) && !slices.Contains(allowed, pkg) {
			t.Errorf("%s imports %q; only %v may", pkg, dep, allowed)
		}
	}
}
