package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// oddBeginnings are sentences of a page that do not begin with the one that acts.
	oddBeginnings = regexp.MustCompile(`(?m)(?:^(?:- )?|[.:!?]\s+|\|\s+|\*\*\s+)((?:Who|Whom|Whose|Whoever|What|Of)\s+[^\s|][^.|\n]{0,40})`)

	// aPage is a page that begins with its title and then with the reader's wish.
	aPage = regexp.MustCompile(`\A# [^\n]+\n\n[^\n]*\b[Yy]ou(?:r)?\b`)

	fenced = regexp.MustCompile("(?s)```.*?```")
)

// oddPages are pages with sentences still to be rewritten. The list only shrinks.
var oddPages = []string{"wire.md"}

// Bounds of the pages that a newcomer reads first.
const (
	maxReadmeLines       = 150
	maxArchitectureWords = 2500
)

// TestFirstPagesAreShort: details have pages of their own.
func TestFirstPagesAreShort(t *testing.T) {
	root := filepath.Join("..", "..")
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(readme), "\n"), maxReadmeLines)
	architecture, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(strings.Fields(string(architecture))), maxArchitectureWords)
}

// TestPages: a page begins with its reader, and its sentences with the one that acts.
func TestPages(t *testing.T) {
	root := filepath.Join("..", "..")
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	require.Greater(t, len(pages), 20)
	for _, name := range []string{"README.md", "SPECIFICATION.md", "CONTRIBUTING.md", "CHANGELOG.md"} {
		pages = append(pages, filepath.Join(root, name))
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		name := filepath.Base(page)
		if name != "README.md" && !aPage.Match(text) {
			t.Errorf("%s does not begin with what its reader wants to do", name)
		}
		found := odd(text)
		if slices.Contains(oddPages, name) {
			require.NotEmpty(t, found, "%s is rewritten: take it off the list", name)
			continue
		}
		for _, sentence := range found {
			t.Errorf("%s: name the one that acts, and begin with it: %q", name, sentence)
		}
	}
}

func odd(page []byte) (sentences []string) {
	for _, m := range oddBeginnings.FindAllSubmatch(fenced.ReplaceAll(page, nil), -1) {
		sentences = append(sentences, string(m[1]))
	}
	return sentences
}

// TestOddPagesAreFound: the test above can fail.
func TestOddPagesAreFound(t *testing.T) {
	require.Len(t, odd([]byte("What is late is dropped. Who waits sleeps.\n- Of these two\n| a | What counts |\n")), 4)
	require.Empty(t, odd([]byte("| What | x |\n```\nWhat it prints\n```\nThe caller waits for what it asked.\n")))
	require.True(t, aPage.MatchString("# Title\n\nYou want to know it.\n"))
	require.False(t, aPage.MatchString("# Title\n\nThe thing is a thing.\n"))
}
