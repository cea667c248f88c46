package main

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// valueFlags are the short flags that take a value: the rest of the same argument
// belongs to them.
const valueFlags = "siod"

// wantsJSON finds --json in a command line that may be wrong, so that the error
// about it is JSON too.
func wantsJSON(args []string) bool {
	for _, arg := range args {
		switch {
		case arg == "--":
			return false
		case arg == "--json", arg == "--json=true":
			return true
		case strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--"):
			flags, _, _ := strings.Cut(arg[1:], "=")
			if i := strings.IndexAny(flags, valueFlags); i >= 0 {
				flags = flags[:i]
			}
			if strings.Contains(flags, "j") {
				return true
			}
		}
	}
	return false
}

var negativeNumber = regexp.MustCompile(`^-[0-9.]`)

// wholeNumber is the beginning of the parser's message for a missing number.
var wholeNumber = regexp.MustCompile(`^expected a valid \d+ bit u?int but got `)

// joinNegative rewrites "--flag -1" as "--flag=-1". No flag here is a digit, so the
// error is then about the number.
func joinNegative(args []string) []string {
	out := make([]string, 0, len(args))
	for i, arg := range args {
		if arg == "--" {
			return append(out, args[i:]...)
		}
		if last := len(out) - 1; last >= 0 && negativeNumber.MatchString(arg) && strings.HasPrefix(out[last], "--") && !strings.Contains(out[last], "=") {
			out[last] += "=" + arg
			continue
		}
		out = append(out, arg)
	}
	return out
}

// failParse reports a command line that the parser refuses, in the words of this
// command instead of the parser's.
func (a *app) failParse(ctx context.Context, err error) int {
	msg := err.Error()
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if node := parse.Context.Selected(); node != nil {
			a.command = node.FullPath()
		}
	}

	flag, rest, ofFlag := strings.Cut(msg, ": ")
	switch {
	case ofFlag && (strings.HasSuffix(rest, `got "EOL" (<EOL>)`) || strings.HasPrefix(rest, "missing value")):
		msg = flag + " needs a value after it"
	case ofFlag && strings.HasPrefix(rest, "expected duration but got "):
		got, _, _ := strings.Cut(strings.TrimPrefix(rest, "expected duration but got "), ": ")
		msg = flag + " " + got + ": write a time like 500ms or 30s"
	case ofFlag && wholeNumber.MatchString(rest):
		msg = flag + " " + wholeNumber.ReplaceAllString(rest, "") + ": write a whole number from 0 up"
	case strings.HasPrefix(msg, "expected one of "):
		msg = "name a command: " + strings.Join(a.subcommands(parse), ", ")
	case a.command == "gpuctl" && strings.HasPrefix(msg, "unexpected argument "):
		msg = "there is no command " + strings.TrimPrefix(msg, "unexpected argument ")
	case strings.HasPrefix(msg, "missing flags: "):
		msg = strings.TrimPrefix(msg, "missing flags: ") + " is needed"
	}

	return a.fail(ctx, usagef("%s", msg))
}

// subcommands lists the commands that could come next on a command line.
func (a *app) subcommands(parse *kong.ParseError) []string {
	var names []string
	node := parse.Context.Model.Node
	for _, p := range parse.Context.Path {
		if p.Command != nil {
			node = p.Command
		}
	}
	a.command = node.FullPath()
	for _, child := range node.Children {
		names = append(names, child.Name)
	}
	return slices.Compact(names)
}
