package native

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exactFunctions are the assembly functions that keep subnormal numbers, or have none.
var exactFunctions = map[string]bool{
	"fillAVX2": true, "addAVX2": true, "saxpyAVX2": true, "rotateAVX2": true, "rotateHalvesAVX2": true,
	"maxAVX2": true, "findAboveAVX2": true, "firstNumberAVX2": true,
	"expandF16AVX2": true, "expandBF16AVX2": true, "expandQ8AVX2": true, "expandQ4AVX2": true,
	"expandF16AVX512": true, "expandBF16AVX512": true, "expandQ8AVX512": true, "expandQ4AVX512": true,
	"RestoreFloats": true,
}

// TestFloatsAtEveryEnd reads the assembly: all other functions set MXCSR first, and
// restore it before each return. A body's later functions would hide that an
// earlier one does not.
func TestFloatsAtEveryEnd(t *testing.T) {
	files, err := filepath.Glob("*_amd64.[hs]")
	require.NoError(t, err)
	macros, functions := map[string]string{}, map[string]string{}
	macro, text := regexp.MustCompile(`(?m)^#define (\w+)(?:.*\\\n)*.*\n`), regexp.MustCompile(`^TEXT ·(\w+)\(SB\).*\n`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range macro.FindAllStringSubmatch(string(source), -1) {
			macros[m[1]] = strings.ReplaceAll(m[0], "\\", "")
		}
		parts := strings.Split(macro.ReplaceAllString(string(source), ""), "\nTEXT ")
		for _, part := range parts[1:] {
			part = "TEXT " + part + "\n"
			m := text.FindStringSubmatch(part)
			require.NotNil(t, m, part)
			require.NotContains(t, functions, m[1])
			functions[m[1]] = part[len(m[0]):]
		}
	}

	require.Greater(t, len(functions), 40)
	use := regexp.MustCompile(`(?m)^\s+(\w+)\(`)
	for name, body := range functions {
		for _, m := range use.FindAllStringSubmatch(body, -1) {
			body += macros[m[1]] // for its returns
		}

		lines := []string{}
		for _, line := range strings.Split(body, "\n") {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines = append(lines, line)
			}
		}

		if exactFunctions[name] {
			require.NotEqual(t, "FLUSH", lines[0], name)
			continue
		}

		require.True(t, lines[0] == "FLUSH" || strings.HasPrefix(lines[0], "LDMXCSR subnormals+"), "%s begins with %s", name, lines[0])
		returns := 0
		for i, line := range lines {
			if line == "RET" {
				returns++
				require.Equal(t, "KEEP", lines[i-1], name)
			}
		}

		require.Positive(t, returns, name)
	}
}
