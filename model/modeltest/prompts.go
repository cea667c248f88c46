package modeltest

import (
	"strconv"
	"strings"
	"testing"
)

// parsePrompts reads lines of a text, a tab, and numbers.
func parsePrompts(t testing.TB, lines string) map[string][]int32 {
	t.Helper()
	all := map[string][]int32{}
	for line := range strings.Lines(lines) {
		text, numbers, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			t.Fatalf("no tab in %q", line)
		}
		for _, f := range strings.Fields(numbers) {
			id, err := strconv.ParseInt(f, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			all[text] = append(all[text], int32(id))
		}
	}

	return all
}
