package accel_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheCompilerRefuses: programs that the Abstract Device Machine forbids do not compile, for the
// reason that their first line tells, and for no other.
func TestTheCompilerRefuses(t *testing.T) {
	check := compiler(t)
	refused, err := filepath.Glob("testdata/refused/*.go")
	require.NoError(t, err)
	require.Greater(t, len(refused), 9)
	for _, path := range refused {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		first, _, _ := strings.Cut(string(text), "\n")
		_, reason, found := strings.Cut(first, ": ")
		require.True(t, found, path)

		mistakes := check(path)
		require.Len(t, mistakes, 1, path)
		require.Contains(t, mistakes[0], reason, path)
	}
	require.Empty(t, check("testdata/admitted/all.go"))
}

// compiler is the front end of the Go compiler: it tells the mistakes of a file.
func compiler(t *testing.T) func(path string) []string {
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", ".", "context").Output()
	require.NoError(t, err)
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		exports[path] = file
	}

	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return func(path string) (mistakes []string) {
		file, err := parser.ParseFile(fset, path, nil, 0)
		require.NoError(t, err)
		config := types.Config{Importer: imports, Error: func(err error) { mistakes = append(mistakes, err.Error()) }}
		_, _ = config.Check("main", fset, []*ast.File{file}, nil) // its error is the first mistake
		return mistakes
	}
}
