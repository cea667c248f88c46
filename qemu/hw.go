package qemu

import (
	"context"
	_ "embed"
	"path/filepath"
	"slices"
	"time"
)

//go:embed testdata/hw.golden
var hardwareGolden string

// HardwareTimeout bounds one run of the hardware guest, boot to power-off. A run takes
// under 3 minutes on two cores that have nothing else to do.
const HardwareTimeout = 10 * time.Minute

// hardwareSilence bounds one check of it.
const hardwareSilence = 4 * time.Minute

// HardwareGolden is the expected output of the client and init in a run of the hardware
// guest.
func HardwareGolden() Golden { return ParseGolden(hardwareGolden) }

// Hardware is one run of the hardware guest: two edu functions, two tenants, an honest
// and a hostile driver.
type Hardware struct {
	Break   string        // what to break on purpose (see guest/hw); "" = nothing
	Args    []string      // more kernel arguments: capgpu.seed=N, capgpu.kills=N
	Timeout time.Duration // 0 = HardwareTimeout
	Line    func(string)  // each line of the console as it comes; may be nil
	Logf    func(format string, args ...any)
}

// Run boots the guest and judges its output. The error is nil only if everything passed.
func (h Hardware) Run(ctx context.Context) (checks int, transcript Transcript, err error) {
	wishes := newWishes()
	vm := VM{
		MemoryMiB: 1024, CPUs: 2, Timeout: h.Timeout, Boot: BootTime, Silence: hardwareSilence, Functions: 2, Monitor: wishes.run,
		Again: wishes.forget,
		// DMA that the IOMMU refuses is an error to the kernel, and here wanted: it would
		// tear our lines.
		Append: append([]string{"capgpu.suite=hw", "loglevel=3"}, h.Args...),
		Line: func(line string) {
			wishes.take(line)
			if h.Line != nil {
				h.Line(line)
			}
		},
	}
	if vm.Timeout == 0 {
		vm.Timeout = HardwareTimeout
	}
	if h.Break != "" {
		vm.Append = append(vm.Append, "capgpu.break="+h.Break)
	}

	transcript, err = bootFiles(ctx, vm, h.Logf, func(repo, cache string, k Kernel) ([]File, error) {
		return hardwareFiles(ctx, repo, cache, k)
	})
	if err != nil {
		return 0, transcript, err
	}

	checks, err = HardwareGolden().Check(transcript)
	return checks, transcript, err
}

// hardwareFiles are all that the hardware guest has.
func hardwareFiles(ctx context.Context, repo, cache string, k Kernel) ([]File, error) {
	files, err := GuestFiles(ctx, repo, cache, append(slices.Clone(productCommands),
		GuestCommand{"./qemu/guest/hw", "bin/hw"}, GuestCommand{"./qemu/guest/hostile-driver", "bin/hostile-driver"}, GuestCommand{"./qemu/guest/init", "init"}))
	if err != nil {
		return nil, err
	}
	modules, err := k.ModuleFiles()
	if err != nil {
		return nil, err
	}
	etc, err := etcFiles(filepath.Join(repo, "qemu", "guest", "etc"))
	return slices.Concat(files, modules, etc), err
}
