package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// oddWords are words that a comment does without, and words that begin no sentence.
var oddWords = regexp.MustCompile(`(?i:\b(?:who|whom|whose|whoever|whomever)\b)|(?:\A|\n\n|[.?!:;]\s+|\n\s*(?:-|\d\.)\s+)(?:What|Of)\b`)

// TestComments: a comment names the goroutine, process or caller that acts, and puts it
// before the verb.
func TestComments(t *testing.T) {
	root := filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(p, ".go") {
			if d != nil && d.IsDir() && p != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			return err
		}

		fset := token.NewFileSet()
		syntax, err := parser.ParseFile(fset, p, nil, parser.ParseComments)
		if err != nil || ast.IsGenerated(syntax) {
			return err
		}
		for _, c := range syntax.Comments {
			odd := oddWords.FindString(c.Text())
			if odd == "" {
				continue
			}
			t.Errorf("%s: a comment says %q: write who acts, then what it does: \"the caller\", \"a goroutine that\", \"the process that\"; let no sentence begin with \"what\" or \"of\"",
				fset.Position(c.Pos()), strings.TrimSpace(odd))
		}
		return nil
	}))
}

func TestCommentsBite(t *testing.T) {
	for _, bad := range []string{
		"Who waits is told.", "x closes it; whoever waits is woken", "a device\nwhose pages", "What ends is told.",
		"It ends. What ends is told.", "A list:\n  - Of one user it is less.", "First.\n\nOf these some.",
	} {
		require.Regexp(t, oddWords, bad)
	}
	for _, good := range []string{"The caller waits.", "It says what ends.", "the whole of it", "Offsets in bytes.", "a list\nOf things"} {
		require.NotRegexp(t, oddWords, good)
	}
}
