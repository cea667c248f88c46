package crashpoint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the module's folder.
const root = "../.."

// labelsInSource are those of all calls of Here, and where each is.
func labelsInSource(t *testing.T) map[string][]string {
	at := map[string][]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "bin", "bench"}, d.Name())) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			s, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || s.Sel.Name != "Here" {
				return true
			}
			if x, ok := s.X.(*ast.Ident); !ok || x.Name != "crashpoint" {
				return true
			}
			where := files.Position(call.Pos()).String()
			lit, ok := call.Args[0].(*ast.BasicLit)
			require.True(t, ok, "%s: a label is a string as it stands", where)
			label, err := strconv.Unquote(lit.Value)
			require.NoError(t, err)
			at[label] = append(at[label], where)
			return true
		})
		return nil
	}))
	return at
}

// Every label in the source is in the table, once, and the other way round.
func TestTableIsTheSource(t *testing.T) {
	source := labelsInSource(t)
	table := map[string]int{}
	for _, l := range Table {
		table[l.Label]++
		require.Contains(t, []string{Manager, Driver, Gate}, RoleOf(l.Label), l.Label)
		require.Regexp(t, `^[a-z]+\.[a-z]+\.[a-z-]+$`, l.Label)
		require.NotEmpty(t, l.What, l.Label)
		require.Len(t, source[l.Label], 1, "%s is at %v; each label is at one place", l.Label, source[l.Label])
	}
	for label, n := range table {
		require.Equal(t, 1, n, "%s is in the table twice", label)
	}
	for label, where := range source {
		require.Contains(t, table, label, "%v", where)
	}
	require.GreaterOrEqual(t, len(Table), 24)
}

func TestParse(t *testing.T) {
	p, err := Parse("driver.job.completed:12")
	require.NoError(t, err)
	require.Equal(t, Point{"driver.job.completed", 12, 1}, p)
	require.Equal(t, "driver.job.completed:12", p.String())
	p, err = Parse("driver.job.completed")
	require.NoError(t, err)
	require.Equal(t, Point{"driver.job.completed", 1, 1}, p)
	p, err = Parse("driver.start.granted:2@3")
	require.NoError(t, err)
	require.Equal(t, Point{"driver.start.granted", 2, 3}, p)
	require.Equal(t, "driver.start.granted:2@3", p.String())
	for _, bad := range []string{"", "driver", "driver.job.completed:0", "driver.job.completed:", "driver.job.completed:x", "driver.job.completed@0", "driver.job.completed:1@", "driver.job.complete"} {
		_, err := Parse(bad)
		require.Error(t, err, "%q", bad)
	}
}

// A program as it is installed calls Here nowhere: the compiler leaves nothing of an
// empty function. One that is built with the tag does.
func TestNothingIsLeftInAnInstalledProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the driver twice")
	}
	dir := t.TempDir()
	build := func(name string, args ...string) string {
		out := filepath.Join(dir, name)
		cmd := exec.Command("go", append([]string{"build", "-o", out}, append(args, "capgpu/cmd/gpu-mock")...)...)
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", text)
		return out
	}
	calls := func(program string) int {
		out, err := exec.Command("go", "tool", "objdump", "-s", `^capgpu/(gpu|driver|driver/session)\.`, program).Output()
		require.NoError(t, err)
		require.Contains(t, string(out), "gpu.(*queue).begin", "what is looked at is there")
		return strings.Count(string(out), "CALL capgpu/internal/crashpoint.Here")
	}
	installed := build("installed")
	require.Zero(t, calls(installed))
	tagged := build("tagged", "-tags", "crashpoint")
	require.Greater(t, calls(tagged), 20)
}
