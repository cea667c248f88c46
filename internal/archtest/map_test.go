package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The sections of CONTRIBUTING.md that name files and folders of the tree.
var mapSections = []string{"## The map", "## Where is it?"}

var (
	// A path is a folder with its slash, or a Go file.
	namedPath = regexp.MustCompile("`([a-z.][A-Za-z0-9_./-]*(?:/|\\.go))`")
	namedFunc = regexp.MustCompile("`([a-z][A-Za-z0-9_./-]*\\.go)`, in `(\\w+)`")
)

// TestMapIsTrue: a newcomer finds each file where CONTRIBUTING.md says that it is.
func TestMapIsTrue(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	require.NoError(t, err)
	for _, heading := range mapSections {
		_, section, found := strings.Cut(string(page), heading+"\n")
		require.True(t, found, "CONTRIBUTING.md has no section %q", heading)
		section, _, _ = strings.Cut(section, "\n## ")
		require.Greater(t, len(namedPath.FindAllString(section, -1)), 10, "paths in %q", heading)
		for _, missing := range missingPlaces(root, section) {
			t.Error(missing)
		}
	}
}

// TestLifeOfALaunchIsTrue: docs/life-of-a-launch.md and its picture name files that exist.
func TestLifeOfALaunchIsTrue(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "life-of-a-launch.md"))
	require.NoError(t, err)
	require.Greater(t, len(namedPath.FindAll(page, -1)), 20)
	for _, missing := range missingPlaces(root, string(page)) {
		t.Error(missing)
	}

	drawn := regexp.MustCompile(`[a-z/]+\.go\b`).FindAllString(string(fenced.Find(page)), -1)
	require.Greater(t, len(drawn), 8)
	for _, file := range drawn {
		_, err := os.Stat(filepath.Join(root, file))
		if !strings.Contains(file, "/") {
			_, err = os.Stat(filepath.Join(root, "gpu", file))
		}
		require.NoError(t, err, "the picture names %s", file)
	}
}

// missingPlaces are the files, folders and functions that a text names and that are not there.
func missingPlaces(root, text string) (missing []string) {
	for _, m := range namedPath.FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			missing = append(missing, "there is no "+m[1])
		}
	}
	for _, m := range namedFunc.FindAllStringSubmatch(text, -1) {
		source, err := os.ReadFile(filepath.Join(root, m[1]))
		if err != nil {
			continue // named above
		}
		if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + m[2] + `\(`).Match(source) {
			missing = append(missing, fmt.Sprintf("%s has no %s", m[1], m[2]))
		}
	}
	return missing
}

// TestMissingPlacesAreFound: the test above can fail.
func TestMissingPlacesAreFound(t *testing.T) {
	root := filepath.Join("..", "..")
	require.Empty(t, missingPlaces(root, "`internal/archtest/`, `internal/archtest/map_test.go`, in `missingPlaces`; `not a path`"))
	require.Len(t, missingPlaces(root, "`nowhere/`, `internal/nothing.go`, `internal/archtest/map_test.go`, in `nothing`"), 3)
}
