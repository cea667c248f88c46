// Command model-server serves a language model from a GPU session. See --help and
// docs/model-server.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/cmdline"
)

func main() { os.Exit(runCommand(os.Args[1:], os.Getenv, os.Stdout, os.Stderr)) }

// The exit statuses, as gpuctl's.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitRefused     = 4
)

func runCommand(args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	o, done, err := parseOptions(args, getenv, stdout)
	switch {
	case err != nil:
		cmdline.Wrong(stderr, "model-server", err)
		return exitUsage
	case done:
		return exitOK
	}

	// Install the handlers before anything starts, so that no signal finds the
	// default action.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer signal.Stop(signals)

	if err := run(context.Background(), o, stderr, signals); err != nil {
		fmt.Fprintln(stderr, "model-server:", err)
		return statusOf(err)
	}

	return exitOK
}

// usageError is a command line that no service could serve.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// statusOf is the exit status for an error.
func statusOf(err error) int {
	if errors.As(err, &usageError{}) {
		return exitUsage
	}
	switch gpuerr.CodeOf(err) {
	case gpuerr.Disconnected, gpuerr.DeviceLost, gpuerr.Revoked, gpuerr.Stale:
		return exitUnreachable
	case gpuerr.Quota, gpuerr.Denied, gpuerr.NoDevice, gpuerr.NoProgram, gpuerr.Busy, gpuerr.Banned, gpuerr.LaunchLimit, gpuerr.Unimplemented:
		return exitRefused
	}
	if errors.Is(err, fs.ErrPermission) {
		return exitUnreachable
	}
	return exitFailed
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
