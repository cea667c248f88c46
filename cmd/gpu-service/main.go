// Command gpu-service is the driver of a hardware function. device-manager starts
// it; started by hand it only reports that. It refuses, with a typed reason, every
// function without a backend. It runs no program of a client itself: it verifies them for
// engine processes.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"capgpu/ddf"
	"capgpu/driver"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/edu"
	"capgpu/gpu/backend/engine"
	"capgpu/gpuerr"
	"capgpu/internal/cmdline"
)

const usage = `gpu-service - the driver of a hardware function of capgpu

usage: gpu-service

It is started by device-manager, which gives it descriptor 3 (supervision link)
and descriptor 4 (grant link), and holds nothing else. It drives

  1234:11e8  edu, QEMU's educational device: copies and fills by its DMA engine,
             and the program edu.factorial

and every function with engine processes (kinds "vulkan" and "lane" of the
policy): programs of clients run in a process of their tenant, which holds the
device and its vendor's library. A function that it has no backend for is refused with E_NO_DEVICE; the fake
function is gpu-mock's.

  --version       print the version and exit
  --help          print this and exit

exit status: 0 after an orderly shutdown, 1 when the driver could not start or
lost its manager, 2 for a wrong command line.
`

// backends are the supported functions, by vendor and device id.
var backends = map[[2]uint16]func(ddf.GrantSet) (backend.Backend, error){
	{edu.VendorID, edu.DeviceID}: func(g ddf.GrantSet) (backend.Backend, error) {
		d, err := edu.New(g)
		if err != nil {
			return nil, err // not a nil *edu.Device in an interface
		}
		return d, nil
	},
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	switch done, err := cmdline.Parse(cmdline.New("gpu-service"), args, usage, stdout); {
	case err != nil:
		cmdline.Wrong(stderr, "gpu-service", err)
		return 2
	case done:
		return 0
	}

	// SIGINT is for the terminal's foreground: the manager decides for this
	// process.
	signal.Ignore(os.Interrupt)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	log := slog.New(slog.NewTextHandler(stderr, nil))
	opened := func(g ddf.GrantSet) (backend.Backend, error) { return open(g, log) }
	if err := driver.Run(ctx, driver.Options{Open: opened, Log: log}); err != nil {
		fmt.Fprintln(stderr, "gpu-service:", err)
		return 1
	}

	return 0
}

// openEngines is the backend of functions with engine processes.
func openEngines(g ddf.GrantSet, log *slog.Logger) (backend.Backend, error) {
	b, err := engine.New(context.Background(), engine.Options{Engines: g.Engines, MemoryBytes: g.DMALimit(), Log: log})
	if err != nil {
		return nil, err // not a nil *engine.Backend in an interface
	}
	return b, nil
}

// open picks the backend of the granted function. Engines are granted only for functions that
// a driver of the kernel keeps, and for devices in software.
func open(g ddf.GrantSet, log *slog.Logger) (backend.Backend, error) {
	d := g.Device
	if g.Engines != nil {
		return openEngines(g, log)
	}
	if d.Fake {
		return nil, gpuerr.New(gpuerr.NoDevice, "%s is the fake function; its driver is gpu-mock", d.Name)
	}
	make, ok := backends[[2]uint16{d.VendorID, d.DeviceID}]
	if !ok {
		return nil, gpuerr.New(gpuerr.NoDevice, "no backend for function %s (%04x:%04x); see gpu-service --help for what it drives; start device-manager with a driver that does (--driver)",
			d.PCIAddress, d.VendorID, d.DeviceID)
	}
	return make(g)
}
