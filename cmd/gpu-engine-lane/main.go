// Command gpu-engine-lane is an engine process without a GPU: it runs programs on the lane
// engine. It is for tests of all that is around engines.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/host/lanedevice"
	"capgpu/internal/cmdline"
	"capgpu/internal/sandbox"
)

const usage = `gpu-engine-lane - an engine process of capgpu that needs no GPU

usage: gpu-engine-lane [--link FD] [--control FD] [--subgroup 8|16|32|64]
                       [--local BYTES] [--fault NAME --at N]

An engine runs the programs of one tenant for gpu-service. This one runs them on
the lane engine, for tests. It is started by device-manager or by a test, which
gives it two sockets of type SOCK_SEQPACKET.

  --link FD       socket to the driver (default 3)
  --control FD    socket to device-manager (default 4)
  --subgroup N    lanes of a subgroup: 8, 16, 32 (the default) or 64
  --local BYTES   memory of the device's own (default 0: it works on the host's)
  --fault NAME    how it misbehaves: crash (the process ends in a run), hang (a
                  run never ends), silent (a run is done and nothing is told),
                  slot (a run is told to have ended as no program can), stuck (a
                  program is compiled for ever)
  --at N          the run, or the program, that has the fault, counted from 1; the
                  self-test has 5 runs, on memory of the device's own 5 more, and
                  one program
  --version       print the version and exit
  --help          print this and exit

exit status: 0 when its driver or device-manager has closed its socket, 1 when the
engine failed, 2 for a wrong command line, 3 by the fault crash.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := cmdline.New("gpu-engine-lane")
	link := flags.Int("link", 3, "")
	control := flags.Int("control", 4, "")
	subgroup := flags.Int("subgroup", 32, "")
	local := flags.Uint64("local", 0, "")
	fault := flags.String("fault", "", "")
	at := flags.Int("at", 0, "")
	done, err := cmdline.Parse(flags, args, usage, stdout)
	switch {
	case err != nil || done:
	case !slices.Contains([]int{8, 16, 32, 64}, *subgroup):
		err = fmt.Errorf("--subgroup is %d; it is 8, 16, 32 or 64", *subgroup)
	case !slices.Contains(lanedevice.Faults, lanedevice.Fault(*fault)):
		err = fmt.Errorf("--fault is %q; it is one of%s", *fault, names())
	}

	switch {
	case err != nil:
		cmdline.Wrong(stderr, "gpu-engine-lane", err)
		return 2
	case done:
		return 0
	}

	options := lanedevice.Options{LocalBytes: *local, Subgroup: *subgroup, Fault: lanedevice.Fault(*fault), FaultAt: *at}
	err = host.Main(*link, *control, func() (host.Device, error) { return lanedevice.New(options), nil },
		func(host.Device) error { return sandbox.Seal(sandbox.Sealed{}) })
	if err != nil {
		fmt.Fprintln(stderr, "gpu-engine-lane:", err)
		return 1
	}
	return 0
}

func names() string {
	var b strings.Builder
	for _, f := range lanedevice.Faults[1:] {
		fmt.Fprintf(&b, " %s", f)
	}
	return b.String()
}
