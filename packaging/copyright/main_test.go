package main

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The built programs themselves name the modules that are in them: each has a licence in the
// list, and so does the toolchain's library.
func TestEveryModuleOfEveryProgramIsCovered(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "copyright")
	require.NoError(t, run(out, []string{"capgpu/cmd/..."}))
	written, err := os.ReadFile(out)
	require.NoError(t, err)
	overview, texts, found := strings.Cut(string(written), line)
	require.True(t, found)

	programs, err := filepath.Glob("../../cmd/*/main.go")
	require.NoError(t, err)
	require.NotEmpty(t, programs)
	for _, main := range programs {
		name := filepath.Base(filepath.Dir(main))
		build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, name), "capgpu/cmd/"+name)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		said, err := build.CombinedOutput()
		require.NoError(t, err, string(said))
		info, err := buildinfo.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Contains(t, overview, "library and runtime "+info.GoVersion+"\n")
		require.Contains(t, texts, "library and runtime "+info.GoVersion+": LICENSE\n")
		require.NotEmpty(t, info.Deps, name)
		for _, m := range info.Deps {
			require.Contains(t, overview, "    "+m.Path+" "+m.Version+"\n", name)
			require.Regexp(t, `(?mi)^`+m.Path+` `+m.Version+`: (un)?(licen[cs]e|copying)`, texts, name)
		}
	}

	require.NoError(t, run(out, []string{"capgpu/cmd/..."}))
	again, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, written, again, "the same modules give the same text")
}

// A licence that a module keeps beside a package that is linked counts, and one that it
// keeps elsewhere does not.
func TestFilesOfPackagesAndAbove(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"LICENSE", "NOTICE.md", "in/COPYING", "in/deep/license.txt", "in/deep/license.go", "other/LICENSE"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte("\n"+name+"\n"), 0o644))
	}
	var p part
	require.NoError(t, p.collect(root, filepath.Join(root, "in", "deep")))
	require.NoError(t, p.collect(root, filepath.Join(root, "in")))
	require.Equal(t, []file{{"LICENSE", "LICENSE"}, {"NOTICE.md", "NOTICE.md"}, {"in/COPYING", "in/COPYING"}, {"in/deep/license.txt", "in/deep/license.txt"}}, p.files)
	require.ErrorContains(t, p.collect(filepath.Join(root, "in"), filepath.Join(root, "other")), "is not in")
}

// A module that gives no right is an error; that it says something of copyright is not enough.
func TestModuleWithoutLicence(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module program\n\ngo 1.26\n\nrequire example.com/m v0.0.0\n\nreplace example.com/m => ./m\n", "main.go": "package main\n\nimport _ \"example.com/m\"\n\nfunc main() {}\n",
		"m/go.mod": "module example.com/m\n\ngo 1.26\n", "m/m.go": "package m\n", "m/NOTICE": "mine\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	t.Chdir(dir)
	out := filepath.Join(dir, "copyright")
	require.ErrorContains(t, run(out, []string{"."}), "example.com/m v0.0.0 (./m in its place) has no licence")
	require.NoFileExists(t, out)
	require.NoError(t, os.WriteFile("m/LICENSE", []byte("do as you like\n"), 0o644))
	require.NoError(t, run(out, []string{"."}))
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(text), "do as you like\n")
	require.Contains(t, string(text), "mine\n")
}
