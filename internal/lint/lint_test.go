package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	maxFileLines = 400
	maxFuncLines = 80
)

var banned = []string{"util", "utils", "common", "helper", "helpers", "misc", "base"}

func TestHouseRules(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	docs := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if name == "testdata" || file != root && strings.HasPrefix(name, ".") || name == "build" {
				return filepath.SkipDir
			}
			require.NotContains(t, banned, name, "folder %s: name it after the concept", file)
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, file)
		require.NoError(t, err)
		src, err := os.ReadFile(file)
		require.NoError(t, err)
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, src, parser.ParseComments)
		require.NoError(t, err)
		if ast.IsGenerated(f) {
			return nil
		}
		if n := strings.Count(string(src), "\n"); n > maxFileLines {
			t.Errorf("%s: %d lines > %d; one file, one concept", rel, n, maxFileLines)
		}
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				if n := set.Position(fn.End()).Line - set.Position(fn.Pos()).Line + 1; n > maxFuncLines {
					t.Errorf("%s: %s has %d lines > %d", rel, fn.Name.Name, n, maxFuncLines)
				}
			}
		}
		dir := filepath.Dir(rel)
		if strings.HasSuffix(name, "_test.go") {
			return nil
		}
		docs[dir] = docs[dir] || f.Doc != nil && slices.Contains([]string{"doc.go", "main.go"}, name)
		return nil
	}))
	for dir, ok := range docs {
		if !ok {
			t.Errorf("%s: no package comment in doc.go (main.go for a command)", dir)
		}
	}
}
