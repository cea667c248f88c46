// Package cmdline is the part that all command lines have in common: help, the version, and
// the refusal of a wrong line.
package cmdline

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// release is set by the linker for a release (tools/build.sh): "v0.1.0".
var release string

// Version says what was built: "v0.1.0 (1b2c3d4e5f6a, go1.26.8, linux/amd64)" for a
// release, else "1b2c3d4e5f6a (go1.26.8, linux/amd64)".
func Version() string {
	commit := ""
	if release != "" {
		commit = Commit() + ", "
	}
	return fmt.Sprintf("%s (%s%s, %s/%s)", Revision(), commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Revision is the number of the release, and of any other build the commit.
func Revision() string {
	if release != "" {
		return release
	}
	return Commit()
}

// Commit is the commit that was built, with "+dirty" if the tree had changes, or "unknown" if
// the go command was built without that.
var Commit = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return commitOf(info.Settings)
})

// commitDigits of a commit tell it from all others.
const commitDigits = 12

func commitOf(settings []debug.BuildSetting) string {
	commit, dirty := "", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), commitDigits)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if commit == "" {
		return "unknown"
	}
	return commit + dirty
}

// New returns the flags of a command, which print nothing by themselves.
func New(command string) *flag.FlagSet {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	return flags
}

// Parse reads a command line that has flags only, --help and --version among them. It reports
// done when the line asked for one of these, which is printed on stdout. An error says what
// is wrong with the line in the user's words.
func Parse(flags *flag.FlagSet, args []string, help string, stdout io.Writer) (done bool, err error) {
	version := flags.Bool("version", false, "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, help)
		return true, nil
	case err != nil:
		return false, inWords(err)
	case flags.NArg() > 0:
		return false, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case *version:
		fmt.Fprintln(stdout, flags.Name(), Version())
		return true, nil
	}
	return false, nil
}

// Wrong prints what is wrong with the command line of a command, and where to read on.
func Wrong(stderr io.Writer, command string, err error) {
	fmt.Fprintf(stderr, "%s: %v; see %s --help\n", command, err, command)
}

// inWords puts an error of the flag package as the help writes flags.
func inWords(err error) error {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		return fmt.Errorf("unknown flag --%s", name)
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		return fmt.Errorf("--%s needs a value", name)
	}
	return errors.New(strings.Replace(text, " for flag -", " for --", 1))
}
