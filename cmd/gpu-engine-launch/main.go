// Command gpu-engine-launch confines itself and becomes an engine process. device-manager
// starts it; started by hand it only reports that. It is static, as the confinement needs it,
// and the engine need not be.
package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"capgpu/internal/cmdline"
	"capgpu/internal/sandbox"
)

const usage = `gpu-engine-launch - confines itself and becomes an engine process of capgpu

usage: gpu-engine-launch SPECIFICATION

It is started by device-manager, which gives it descriptor 3 (the engine's link),
descriptor 4 (its control socket), descriptor 5 (its program) and a specification
of what the engine may see, as JSON. See docs/gpus.md.

  --version       print the version and exit
  --help          print this and exit

exit status: 1 when the engine could not be started, 2 for a wrong command line.
`

// links are the descriptors that the engine inherits.
const links = 2

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := cmdline.New("gpu-engine-launch")
	specification := ""
	if len(args) > 0 && args[0] != "" && args[0][0] == '{' {
		specification, args = args[0], args[1:]
	}
	switch done, err := cmdline.Parse(flags, args, usage, stdout); {
	case err != nil:
		cmdline.Wrong(stderr, "gpu-engine-launch", err)
		return 2
	case done:
		return 0
	case specification == "":
		cmdline.Wrong(stderr, "gpu-engine-launch", errors.New("an engine is started by device-manager, which says what it may see"))
		return 2
	}

	launched, err := sandbox.ParseLaunched([]byte(specification))
	if err == nil {
		err = sandbox.Launch(launched, links, slog.New(slog.NewTextHandler(stderr, nil)))
	}
	fmt.Fprintln(stderr, "gpu-engine-launch:", err)
	return 1
}
