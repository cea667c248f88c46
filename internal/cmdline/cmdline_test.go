package cmdline

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
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
	require.Regexp(t, `^`+regexp.QuoteMeta(Commit())+` \(go1\.\S+, linux/\w+\)$`, Version())
	release = "v1.2.3"
	defer func() { release = "" }()
	require.Equal(t, "v1.2.3", Revision())
	require.Regexp(t, `^v1\.2\.3 \(`+regexp.QuoteMeta(Commit())+`, go1\.\S+, linux/\w+\)$`, Version())
}

func TestCommit(t *testing.T) {
	id := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	for want, settings := range map[string][]debug.BuildSetting{
		"unknown":            {{Key: "vcs.modified", Value: "true"}},
		"0123456789ab":       {id, {Key: "vcs.modified", Value: "false"}},
		"0123456789ab+dirty": {{Key: "vcs.modified", Value: "true"}, id},
		"7":                  {{Key: "vcs.revision", Value: "7"}},
	} {
		require.Equal(t, want, commitOf(settings))
	}
}

// Every program that tools/build.sh builds says which release or which commit it is, and
// is the same, to the bit, however often and wherever it is built.
func TestBuildScript(t *testing.T) {
	commit, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		t.Skip("not a checkout: no commit to compare with")
	}
	build := func(release, name string) []byte {
		dir := t.TempDir()
		cmd := exec.Command("../../tools/build.sh", dir, name)
		cmd.Env = append(os.Environ(), "VERSION="+release)
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, string(said))
		program, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		said, err = exec.Command(filepath.Join(dir, name), "--version").Output()
		require.NoError(t, err)
		want := strings.TrimSpace(string(commit)) + `(\+dirty)?`
		if release == "" {
			want += ` \(`
		} else {
			want = release + ` \(` + want + `, `
		}
		require.Regexp(t, `^`+name+` `+want+`go1\.\S+, linux/\w+\)\n$`, string(said))
		return program
	}
	for _, name := range []string{"device-manager", "gpu-service", "gpu-mock", "gpu-gate", "gpuctl", "model-server"} {
		build("v9.8.7", name)
	}
	require.True(t, bytes.Equal(build("", "gpu-gate"), build("", "gpu-gate")))

	cmd := exec.Command("../../tools/build.sh", t.TempDir(), "gpu-gate")
	cmd.Env = append(os.Environ(), "VERSION=1.0 beta")
	said, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(said), "VERSION=1.0 beta is no version")
}
