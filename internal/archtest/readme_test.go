package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadmeCodeCompiles builds every Go program that README.md shows.
func TestReadmeCodeCompiles(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	programs := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)
	require.NotEmpty(t, programs, "Go programs in README.md")
	for _, p := range programs {
		dir := t.TempDir()
		main := filepath.Join(dir, "main.go")
		require.NoError(t, os.WriteFile(main, p[1], 0o644))
		build := exec.Command("go", "build", "-o", filepath.Join(dir, "example"), main)
		build.Dir = filepath.Join("..", "..")
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// TestReadmeLinksExist follows the links of the pages at the root and in docs/ to files.
func TestReadmeLinksExist(t *testing.T) { followLinks(t, filepath.Join("..", "..")) }

// TestInstalledLinksExist follows them where `make install` puts the documents.
func TestInstalledLinksExist(t *testing.T) {
	dir := t.TempDir()
	out, err := exec.Command(filepath.Join("..", "..", "tools", "install-docs.sh"), dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	followLinks(t, dir)
	for _, unit := range []string{"capgpu.service", "capgpu-model@.service"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "packaging", unit))
		require.NoError(t, err)
		m := regexp.MustCompile(`(?m)^Documentation=file:///usr/share/doc/capgpu/(.+)$`).FindSubmatch(text)
		require.NotNil(t, m, unit)
		require.FileExists(t, filepath.Join(dir, string(m[1])))
	}
}

func followLinks(t *testing.T, root string) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, name := range []string{"README.md", "SPECIFICATION.md", "CONTRIBUTING.md", "CHANGELOG.md"} {
		pages = append(pages, filepath.Join(root, name))
	}
	link := regexp.MustCompile(`\]\(([^)#\s]+)`)
	code := regexp.MustCompile("(?s)```.*?```") // f[T](x) is no link
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllSubmatch(code.ReplaceAll(text, nil), -1) {
			target := string(m[1])
			if strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), target)); err != nil {
				t.Errorf("%s links to %s: %v", page, target, err)
			}
		}
	}
}
