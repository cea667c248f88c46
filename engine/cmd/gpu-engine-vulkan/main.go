// Command gpu-engine-vulkan is an engine process: it holds a Vulkan driver and a device's
// nodes, and works for one tenant.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"capgpu/engine/vulkan"
	"capgpu/gpu/backend/engine/host"
	"capgpu/internal/cmdline"
	"capgpu/internal/sandbox"
)

const usage = `gpu-engine-vulkan - an engine process of capgpu, on a Vulkan device

usage: gpu-engine-vulkan [--link FD] [--control FD] [--address ADDRESS] [--local]
       gpu-engine-vulkan --describe [--address ADDRESS] [--local]

An engine runs the programs of one tenant for gpu-service. It opens a Vulkan
device, checks that it has all that programs need and that its driver computes
rightly, and serves. device-manager starts it and gives it two sockets of type
SOCK_SEQPACKET.

  --link FD         socket to the driver (default 3)
  --control FD      socket to device-manager (default 4)
  --describe        serve nobody: print the device as JSON (names, limits,
                    features, memory of its own in bytes)
  --address ADDRESS the device with this PCI address, as "0000:01:00.0";
                    without it the first that will do
  --local           a device that works on the host's memory offers some of
                    it as its own
  --version         print the version and exit
  --help            print this and exit

environment: VK_DRIVER_FILES names the manifest of the driver, LP_NUM_THREADS=0
has Mesa's lavapipe compute on one thread.

exit status: 0 when the device was described, or when its driver or
device-manager has closed its socket; 1 when the device could not be opened, or
the engine failed, with the reason; 2 for a wrong command line.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	const name = "gpu-engine-vulkan"
	flags := cmdline.New(name)
	var o vulkan.Options
	link := flags.Int("link", 3, "")
	control := flags.Int("control", 4, "")
	describe := flags.Bool("describe", false, "")
	flags.StringVar(&o.PCIAddress, "address", "", "")
	flags.BoolVar(&o.Local, "local", false, "")
	done, err := cmdline.Parse(flags, args, usage, stdout)
	switch {
	case err != nil:
		cmdline.Wrong(stderr, name, err)
		return 2
	case done:
		return 0
	}

	if *describe {
		var d host.Device
		if d, err = vulkan.Open(o); err == nil {
			err = print(stdout, d)
		}
	} else {
		err = host.Main(*link, *control, func() (host.Device, error) { return vulkan.Open(o) }, seal)
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// PCI vendors that have drivers of their own in the kernel.
const vendorNVIDIA = 0x10de

// seal leaves the process what the library of the device's vendor needs from here on. Only
// NVIDIA's was measured, on 580.159 (docs/gpus.md, section 3): it opens its nodes for each piece
// of memory. A device in software makes no ioctl; all others are DRM's.
func seal(d host.Device) error {
	switch about := d.Describe(); {
	case about.Vendor == vendorNVIDIA:
		return sandbox.Seal(sandbox.Sealed{Ioctl: []byte{'F'}, Open: true})
	case about.PCIAddress == "":
		return sandbox.Seal(sandbox.Sealed{})
	}
	return sandbox.Seal(sandbox.Sealed{Ioctl: []byte{'d'}})
}

// print prints the description of a device, and closes it.
func print(to io.Writer, d host.Device) error {
	text, err := json.MarshalIndent(d.Describe(), "", "  ")
	if err == nil {
		_, err = fmt.Fprintln(to, string(text))
	}
	return errors.Join(err, d.Close())
}
