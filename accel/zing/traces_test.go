package zing

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

// TestTracesAreThoseOfThePage: docs/errors.md gives each code its trace, and it is that one.
func TestTracesAreThoseOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/errors.md")
	require.NoError(t, err)
	want := map[string]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 8 || !strings.HasPrefix(strings.TrimSpace(cells[2]), "E_") {
			continue
		}
		if trace := regexp.MustCompile(`#(t_[a-z_]+)`).FindStringSubmatch(cells[len(cells)-2]); trace != nil {
			want[strings.TrimSpace(cells[2])] = trace[1]
		}
	}

	got := map[string]string{}
	for _, code := range gpuerr.Codes() {
		if _, ok := traces[code]; ok {
			got[code.String()] = failureOf(gpuerr.New(code, "why")).trace
		}
	}
	require.Equal(t, want, got)
	require.Greater(t, len(got), 10)
}
