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

// Claims of docs/threat-model.md begin with one of these. Each names what proves
// it: a Go test as `package.TestName`, a check of a guest as `hw: its words` or
// `smoke: its words`; or says why nothing does.
var claims = []string{"- Cannot ", "- Is ", "- Ends "}

const unproven = "not proven by a test: "

// Promises of SPECIFICATION.md begin like this; what holds one may also be a command
// that measures it, as `make TARGET`.
var promise = regexp.MustCompile(`^- \*\*[A-Z][0-9]+\*\* `)

var (
	goTest     = regexp.MustCompile("`([a-z][a-z0-9/]*)\\.((?:Test|Fuzz)\\w+)`")
	guestCheck = regexp.MustCompile("`(hw|smoke): ([^`]+)`")
	makeTarget = regexp.MustCompile("`make ([A-Za-z0-9-]+)[^`]*`")
)

// TestThreatsAreProven holds the page to the tests that it names.
func TestThreatsAreProven(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "threat-model.md"))
	require.NoError(t, err)
	count := 0
	for _, line := range strings.Split(string(page), "\n") {
		if !isClaim(line) {
			continue
		}
		count++
		if !strings.Contains(line, unproven) && !goTest.MatchString(line) && !guestCheck.MatchString(line) {
			t.Errorf("nothing proves: %s", line)
		}
	}
	require.Greater(t, count, 20, "claims")
	for _, missing := range missingProofs(root, string(page)) {
		t.Error(missing)
	}
}

// TestPromisesAreHeld holds the specification to the tests and commands that it names,
// and its lines to numbers of their own.
func TestPromisesAreHeld(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "SPECIFICATION.md"))
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, line := range strings.Split(string(page), "\n") {
		name := promise.FindString(line)
		if name == "" {
			require.False(t, strings.HasPrefix(line, "- "), "a promise without a number: %s", line)
			continue
		}
		if seen[name] {
			t.Errorf("two promises are called %s", name)
		}
		seen[name] = true
		if !goTest.MatchString(line) && !guestCheck.MatchString(line) && !makeTarget.MatchString(line) {
			t.Errorf("nothing holds: %s", line)
		}
	}
	require.Greater(t, len(seen), 30, "promises")
	for _, missing := range missingProofs(root, string(page)) {
		t.Error(missing)
	}
}

func isClaim(line string) bool {
	for _, c := range claims {
		if strings.HasPrefix(line, c) {
			return true
		}
	}
	return false
}

// missingProofs are the tests and checks that a text names and that are not there.
func missingProofs(root, text string) (missing []string) {
	sources := map[string]string{}
	read := func(pattern string) string {
		if s, ok := sources[pattern]; ok {
			return s
		}
		var all strings.Builder
		files, _ := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				missing = append(missing, err.Error())
			}
			all.Write(b)
		}
		sources[pattern] = all.String()
		return sources[pattern]
	}
	for _, m := range goTest.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(read(m[1]+"/*.go"), "func "+m[2]+"(") {
			missing = append(missing, fmt.Sprintf("%s has no %s", m[1], m[2]))
		}
	}
	for _, m := range guestCheck.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(read("qemu/guest/"+m[1]+"/*.go"), m[2]) {
			missing = append(missing, fmt.Sprintf("the %s guest has no check %q", m[1], m[2]))
		}
	}
	for _, m := range makeTarget.FindAllStringSubmatch(text, -1) {
		// A pattern rule is written with a %: bench-P1 is one of bench-P%.
		rule := regexp.MustCompile("(?m)^(" + regexp.QuoteMeta(m[1]) + "|" + regexp.QuoteMeta(strings.TrimRight(m[1], "0123456789")) + "%):")
		if !rule.MatchString(read("Makefile")) {
			missing = append(missing, "there is no make "+m[1])
		}
	}
	return missing
}

// TestMissingProofsAreFound: the test above can fail.
func TestMissingProofsAreFound(t *testing.T) {
	root := filepath.Join("..", "..")
	require.Empty(t, missingProofs(root, "- Cannot x. `internal/archtest.TestMissingProofsAreFound`"))
	require.Len(t, missingProofs(root, "- Cannot x. `internal/archtest.TestMissing`, `hw: no such words`, `nowhere.TestX`, `make nothing`"), 4)
	require.Empty(t, missingProofs(root, "`make bench-P7`, `make test`"))
	require.True(t, isClaim("- Cannot x"))
	require.False(t, isClaim("- cannot x"))
}
