package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "capgpu"

// layers from the ground up. A package belongs to the layer with its longest
// prefix, and imports from layers below its own, or from its own tree (ddf/fake
// may import ddf, never the other way round within one layer of this list).
var layers = [][]string{
	{"outcome", "gpuerr", "schema"},
	{"internal", "ledger"},
	{"iommu"},
	{"ring", "ddf", "program"},
	{"audit", "ddf/fake", "ddf/vfio", "ddf/ddfrpc", "ddf/ddftest", "control", "gpu/backend"},
	{"client", "gpu/backend/mock", "gpu/backend/edu", "gpu/gputest/backendtest"},
	{"gpu", "gpu/backend/engine/enginetest"},
	{"driver/session", "gate/encode"},
	{"accel"},
	{"gate", "manager", "model", "driver", "conformance"},
	{"cmd", "packaging", "qemu", "examples", "sim", "internal/archtest", "internal/e2e"},
}

// bans say more than the layers do: the packages of the first column import
// none of the second, directly or through others, outside tests.
var bans = []struct {
	who, what []string
	why       string
	not       []string // exceptions to the first column
}{
	{[]string{"client"}, []string{"gpu", "driver/session", "manager", "gate", "driver", "ddf"},
		"a client holds no server code", nil},
	{[]string{"gate", "cmd/gpu-gate"}, []string{"gpu", "driver/session", "manager", "driver", "ddf"},
		"a gate is a client; it holds no grant and no device code", nil},
	{[]string{"accel"}, []string{"gpu", "driver/session", "manager", "gate", "driver", "ddf", "schema"},
		"a face is a client and no more", nil},
	{[]string{"manager"}, []string{"gpu", "driver/session", "driver", "gate"},
		"the manager runs no driver and no gate in its own process", nil},
	{[]string{"cmd/device-manager"}, []string{"program/spirv", "program/verify", "program/lane", "program/native"},
		"the trusted process reads no programs", nil},
	{[]string{"gpu"}, []string{"control", "client", "internal/rpcguard", "schema"},
		"the core is testable without a socket", nil},
	{[]string{"ring", "control"}, []string{"ddf", "gpu", "ledger", "schema"},
		"the wires know nothing of either end", nil},
}

// words are packages of types that two processes exchange: no code of either is in them.
var words = []string{"gpu/backend/engine/control", "gpu/backend/engine/wire"}

// outside says which packages may import a foreign module, outside tests.
var outside = []struct {
	prefix string
	who    []string
}{
	{"capnproto.org/go/capnp", []string{"schema", "internal/rpcguard", "ddf/ddfrpc", "gate", "manager", "model", "conformance", "qemu/guest"}},
	{"github.com/u-root/u-root", []string{"qemu", "iommu", "manager"}},
	{"github.com/alecthomas/kong", []string{"cmd/gpuctl"}},
	{"github.com/prometheus", []string{"model/openai"}},
	{"golang.org/x/mod", []string{"audit", "ddf/fake"}},
	{"golang.org/x/text", []string{"model/tokenizer"}},
	{"github.com/stretchr/testify", nil}, // conformance suites: see testOnly
	{"pgregory.net/rapid", nil},
}

// testOnly packages exist for tests and may import what tests may.
func testOnly(pkg string) bool {
	base := path.Base(pkg)
	return strings.HasSuffix(base, "test") || base == "leakcheck" || base == "e2e"
}

// file is one Go file of the tree.
type file struct {
	path, pkg string // relative to the root
	test      bool
	imports   []string
	syntax    *ast.File
}

func TestImportsPointOneWay(t *testing.T) {
	for _, f := range parseTree(t) {
		if f.test {
			continue
		}
		from, ok := layerOf(f.pkg)
		if !ok {
			t.Errorf("%s: package %s is in no layer: add it to layers", f.path, f.pkg)
			continue
		}
		for _, imp := range ours(f.imports) {
			to, ok := layerOf(imp)
			if ok && to >= from && !sameTree(f.pkg, imp) {
				t.Errorf("%s: %s must not import %s, which is not below it", f.path, f.pkg, imp)
			}
		}
	}
}

func TestBannedImports(t *testing.T) {
	graph := map[string]map[string]bool{}
	for _, f := range parseTree(t) {
		if f.test || testOnly(f.pkg) {
			continue
		}
		if graph[f.pkg] == nil {
			graph[f.pkg] = map[string]bool{}
		}
		for _, imp := range ours(f.imports) {
			graph[f.pkg][imp] = true
		}
	}
	for _, b := range bans {
		for pkg := range graph {
			if !in(pkg, b.who) || in(pkg, b.not) {
				continue
			}
			for dep, chain := range reach(graph, pkg) {
				if in(dep, b.what) && !in(dep, b.who) && !in(dep, words) {
					t.Errorf("%s must not depend on %s (%s): %s", pkg, dep, b.why, chain)
				}
			}
		}
	}
}

func TestBackendsDoNotImportEachOther(t *testing.T) {
	const backends = "gpu/backend"
	for _, f := range parseTree(t) {
		for _, imp := range ours(f.imports) {
			if !under(f.pkg, backends) || !under(imp, backends) || f.pkg == backends || imp == backends || testOnly(imp) {
				continue
			}
			if branch(f.pkg, backends) != branch(imp, backends) {
				t.Errorf("%s: backend %s imports backend %s", f.path, f.pkg, imp)
			}
		}
	}
}

func TestForeignModules(t *testing.T) {
	for _, f := range parseTree(t) {
		if f.test || testOnly(f.pkg) {
			continue
		}
		for _, imp := range f.imports {
			for _, o := range outside {
				if strings.HasPrefix(imp, o.prefix) && !in(f.pkg, o.who) {
					t.Errorf("%s: %s must not import %s; only %v may", f.path, f.pkg, imp, o.who)
				}
			}
		}
	}
}

func TestUnsafeHasFilesOfItsOwn(t *testing.T) {
	for _, f := range parseTree(t) {
		name := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.path), ".go"), "_test")
		if strings.HasSuffix(name, "_unsafe") || ast.IsGenerated(f.syntax) {
			continue
		}
		for _, imp := range f.imports {
			if imp == "unsafe" {
				t.Errorf("%s imports unsafe: move what needs it to a file named *_unsafe.go", f.path)
			}
		}
	}
}

// TestRawSystemCalls: a system call by number has no types to protect it.
func TestRawSystemCalls(t *testing.T) {
	for _, f := range parseTree(t) {
		if in(f.pkg, []string{"internal", "iommu", "ddf/vfio"}) {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if ok && (pkg.Name == "unix" || pkg.Name == "syscall") && strings.Contains(sel.Sel.Name, "Syscall") {
				t.Errorf("%s: %s.%s belongs in internal, iommu or ddf/vfio", f.path, pkg.Name, sel.Sel.Name)
			}
			return true
		})
	}
}

// TestTheRulesBite: every helper that the rules stand on can say no.
func TestTheRulesBite(t *testing.T) {
	require.True(t, under("gpu/backend/mock", "gpu/backend"))
	require.False(t, under("gpuerr", "gpu"))
	require.True(t, in("gate/x", []string{"gate"}))
	require.Equal(t, "mock", branch("gpu/backend/mock/engine", "gpu/backend"))

	low, ok := layerOf("ring")
	require.True(t, ok)
	high, ok := layerOf("driver/session")
	require.True(t, ok)
	require.Less(t, low, high)
	core, _ := layerOf("gpu")
	backend, _ := layerOf("gpu/backend/mock")
	require.Less(t, backend, core)
	driver, _ := layerOf("driver")
	require.Greater(t, driver, core)
	_, ok = layerOf("nowhere")
	require.False(t, ok)

	chains := reach(map[string]map[string]bool{"a": {"b": true}, "b": {"c": true}}, "a")
	require.Equal(t, "a → b → c", chains["c"])
}

// parseTree reads every Go file of the module.
func parseTree(t *testing.T) []file {
	t.Helper()
	root := filepath.Join("..", "..")
	fset := token.NewFileSet()
	var files []file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			// Another module, a hidden folder, or data.
			if rel != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin" || rel == "tools" || rel == "bench" || rel == "engine") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		syntax, err := parser.ParseFile(fset, p, nil, parser.ParseComments)
		if err != nil {
			return fmt.Errorf("parse %s: %w", rel, err)
		}
		f := file{path: rel, pkg: path.Dir(filepath.ToSlash(rel)), test: strings.HasSuffix(rel, "_test.go"), syntax: syntax}
		for _, i := range syntax.Imports {
			imp, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			f.imports = append(f.imports, imp)
		}
		files = append(files, f)
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(files), 20, "Go files found")
	return files
}

// ours are the imports of this module, without its name.
func ours(imports []string) []string {
	var own []string
	for _, imp := range imports {
		if rel, ok := strings.CutPrefix(imp, module+"/"); ok {
			own = append(own, rel)
		}
	}
	return own
}

func layerOf(pkg string) (layer int, ok bool) {
	longest := -1
	for i, prefixes := range layers {
		for _, prefix := range prefixes {
			if under(pkg, prefix) && len(prefix) > longest {
				layer, longest = i, len(prefix)
			}
		}
	}
	return layer, longest >= 0
}

// sameTree: both stand under one entry of one layer, such as internal or cmd.
func sameTree(a, b string) bool {
	for _, prefixes := range layers {
		for _, prefix := range prefixes {
			if under(a, prefix) && under(b, prefix) {
				la, _ := layerOf(a)
				lb, _ := layerOf(b)
				return la == lb
			}
		}
	}
	return false
}

func under(pkg, prefix string) bool { return pkg == prefix || strings.HasPrefix(pkg, prefix+"/") }

func in(pkg string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if under(pkg, prefix) {
			return true
		}
	}
	return false
}

// branch is the first element of pkg below prefix.
func branch(pkg, prefix string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(pkg, prefix+"/"), "/")
	return first
}

// reach maps every package that from depends on to one chain of imports.
func reach(graph map[string]map[string]bool, from string) map[string]string {
	chains := map[string]string{from: from}
	queue := []string{from}
	for len(queue) > 0 {
		pkg := queue[0]
		queue = queue[1:]
		next := make([]string, 0, len(graph[pkg]))
		for dep := range graph[pkg] {
			next = append(next, dep)
		}
		sort.Strings(next)
		for _, dep := range next {
			if _, seen := chains[dep]; !seen {
				chains[dep] = chains[pkg] + " → " + dep
				queue = append(queue, dep)
			}
		}
	}
	delete(chains, from)
	return chains
}
