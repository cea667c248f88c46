// Command gpu-mock is the driver of the fake function: the whole service core on a
// software device. device-manager starts it; started by hand it only reports that.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"capgpu/ddf"
	"capgpu/driver"
	"capgpu/driver/rehearsal"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/gpu/backend/mock/faults"
	"capgpu/gpuerr"
	"capgpu/internal/cmdline"
)

const usage = `gpu-mock - the driver of capgpu's fake function

usage: gpu-mock [--engine auto|lane] [--subgroup 8|16|32|64] [--discrete]
                [--faults SCRIPT]

A driver process with a software device behind it. It is started by
device-manager, which gives it descriptor 3 (supervision link) and descriptor 4
(grant link), and holds nothing else. To try the service, run
"device-manager --dev".

  --engine NAME   what runs programs: "auto" (the fast bodies that some of them
                  have, and the lane engine for the others; the default), or
                  "lane" (the lane engine for all)
  --subgroup N    lanes of a subgroup: 8, 16, 32 (the default) or 64
  --discrete      the device has memory of its own, as much as it may have of
                  the host's: buffers of usage device lie there, a binding
                  begins at a multiple of 256 bytes, and memory is lost with a
                  reset
  --faults SCRIPT what goes wrong with the device, as JSON: {"seed": 7, "faults":
                  [{"kind": "hang", "job": 3}]}. For tests. device-manager gives
                  the text itself; the name of a file with it works by hand.
  --version       print the version and exit
  --help          print this and exit

exit status: 0 after an orderly shutdown, 1 when the driver could not start or
lost its manager, 2 for a wrong command line.
`

// stateVersion is set by the linker, for tests of drivers with different versions;
// "" is the version of this source.
var stateVersion string

// versionOf reads a version that the linker has set.
func versionOf(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32)
	return uint32(n)
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := cmdline.New("gpu-mock")
	faults := flags.String("faults", "", "")
	engine := flags.String("engine", "auto", "")
	discrete := flags.Bool("discrete", false, "")
	subgroup := flags.Int("subgroup", 32, "")
	done, err := cmdline.Parse(flags, args, usage, stdout)
	switch {
	case err != nil || done:
	case *engine != "auto" && *engine != "lane":
		err = fmt.Errorf("--engine is %q; it is auto or lane", *engine)
	case !slices.Contains([]int{8, 16, 32, 64}, *subgroup):
		err = fmt.Errorf("--subgroup is %d; it is 8, 16, 32 or 64", *subgroup)
	}

	switch {
	case err != nil:
		cmdline.Wrong(stderr, "gpu-mock", err)
		return 2
	case done:
		return 0
	}

	script, err := readScript(*faults)
	if err != nil {
		fmt.Fprintln(stderr, "gpu-mock:", err)
		return 1
	}

	// SIGINT is for the terminal's foreground: the manager decides for this
	// process.
	signal.Ignore(os.Interrupt)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	// The processors that driver.Run adds are not for kernels.
	options := mock.Options{Workers: runtime.GOMAXPROCS(0), Script: script, Subgroup: *subgroup, LaneOnly: *engine == "lane"}
	err = driver.Run(ctx, driver.Options{
		StateVersion: versionOf(stateVersion),
		Log:          slog.New(slog.NewTextHandler(stderr, nil)),
		Open: func(g ddf.GrantSet) (backend.Backend, error) {
			if !g.Device.Fake {
				return nil, gpuerr.New(gpuerr.Denied, "%s (%04x:%04x) is a real function; gpu-mock drives the fake one only, gpu-service drives hardware",
					g.Device.Name, g.Device.VendorID, g.Device.DeviceID)
			}
			o := options
			o.MemoryBytes = g.DMALimit()
			if *discrete {
				o.LocalBytes = o.MemoryBytes
			}
			return mock.New(o)
		},
		Rehearse: func(ctx context.Context) error {
			return rehearsal.Run(ctx, func(ddf.GrantSet) (backend.Backend, error) {
				o := options
				o.Script = mock.Script{} // the script's faults are for the real device
				return mock.New(o)
			})
		},
	})
	if err != nil {
		fmt.Fprintln(stderr, "gpu-mock:", err)
		return 1
	}

	return 0
}

// readScript reads a fault script, or the file that holds it.
func readScript(arg string) (mock.Script, error) {
	if arg == "" {
		return mock.Script{}, nil
	}
	text := []byte(arg)
	if !strings.HasPrefix(strings.TrimSpace(arg), "{") {
		var err error
		if text, err = os.ReadFile(arg); err != nil {
			return mock.Script{}, fmt.Errorf("read the fault script: %w", err)
		}
	}
	script, err := faults.ParseScript(text)
	if err != nil {
		return mock.Script{}, fmt.Errorf("fault script %s: %w", arg, err)
	}
	return script, nil
}
