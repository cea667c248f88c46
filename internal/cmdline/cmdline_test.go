package cmdline

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		line, stdout, err string
		done              bool
	}{
		{line: ""},
		{line: "--number 3"},
		{line: "-h", stdout: "help\n", done: true},
		{line: "--number=4 --help", stdout: "help\n", done: true},
		{line: "--version", stdout: "thing " + Version() + "\n", done: true},
		{line: "--bogus", err: "unknown flag --bogus"},
		{line: "--number", err: "--number needs a value"},
		{line: "--number x", err: `invalid value "x" for --number: parse error`},
		{line: "--number 3 more", err: `unexpected argument "more"`},
		{line: "more --version", err: `unexpected argument "more"`},
	} {
		t.Run(c.line, func(t *testing.T) {
			var stdout bytes.Buffer
			flags := New("thing")
			flags.Int("number", 0, "")
			done, err := Parse(flags, strings.Fields(c.line), "help\n", &stdout)
			require.Equal(t, c.done, done)
			require.Equal(t, c.stdout, stdout.String())
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.err)
			}
		})
	}
}

func TestWrongSaysWhereToReadOn(t *testing.T) {
	var stderr bytes.Buffer
	flags := New("thing")
	_, err := Parse(flags, []string{"--bogus"}, "", &stderr)
	Wrong(&stderr, flags.Name(), err)
	require.Equal(t, "thing: unknown flag --bogus; see thing --help\n", stderr.String())
}

func TestVersionNamesToolchainAndPlatform(t *testing.T) {
	require.Regexp(t, `^unknown \(go1\.\S+, linux/\w+\)$`, Version())
}
