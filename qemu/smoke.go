package qemu

import (
	"cmp"
	"context"
	_ "embed"
	"os"
	"path/filepath"
	"slices"
	"time"
)

//go:embed testdata/smoke.golden
var smokeGolden string

//go:embed testdata/lifecycle.golden
var lifecycleGolden string

// SmokeTimeout bounds one run, boot to power-off. A run takes some 30 s on two cores, and
// three times that where they have other work as well.
const SmokeTimeout = 5 * time.Minute

// smokeSilence bounds one check of it.
const smokeSilence = 2 * time.Minute

// SmokeGolden is the expected output of the client and init in a smoke run.
func SmokeGolden() Golden { return ParseGolden(smokeGolden) }

// LifecycleGolden is the expected output of the manager beside it.
func LifecycleGolden() Golden { return ParseGolden(lifecycleGolden) }

// Smoke is one run of the smoke guest.
type Smoke struct {
	Break   string        // what to break on purpose (see guest/init); "" = nothing
	Timeout time.Duration // 0 = SmokeTimeout
	Silence time.Duration // as VM's; 0 = two minutes
	Line    func(string)  // each line of the console as it comes; may be nil
	Logf    func(format string, args ...any)
}

// Run gets the kernel, builds the initramfs, boots it and judges its output. The error is nil
// only if everything passed.
func (s Smoke) Run(ctx context.Context) (checks int, transcript Transcript, err error) {
	vm := VM{MemoryMiB: 1024, CPUs: 2, Timeout: s.Timeout, Boot: BootTime, Silence: cmp.Or(s.Silence, smokeSilence), Line: s.Line}
	if vm.Timeout == 0 {
		vm.Timeout = SmokeTimeout
	}
	if s.Break != "" {
		vm.Append = append(vm.Append, "capgpu.break="+s.Break)
	}

	transcript, err = bootFiles(ctx, vm, s.Logf, func(repo, cache string, _ Kernel) ([]File, error) {
		return smokeFiles(ctx, repo, cache, s.Logf)
	})
	if err != nil {
		return 0, transcript, err
	}
	if checks, err = SmokeGolden().Check(transcript); err != nil {
		return 0, transcript, err
	}
	if err = LifecycleGolden().Match(transcript); err != nil {
		return 0, transcript, err
	}

	return checks, transcript, nil
}

// bootFiles boots a machine with a kernel of ours and a root of these files.
func bootFiles(ctx context.Context, vm VM, logf func(format string, args ...any), files func(repo, cache string, k Kernel) ([]File, error)) (Transcript, error) {
	repo, err := RepoRoot()
	if err != nil {
		return nil, err
	}

	cache := CacheDir(repo)
	kernel, err := FindKernel(ctx, cache, logf)
	if err != nil {
		return nil, err
	}

	root, err := files(repo, cache, kernel)
	if err != nil {
		return nil, err
	}

	initrd, err := TempInitramfs(cache, root)
	if err != nil {
		return nil, err
	}

	defer os.Remove(initrd)
	logf("booting %s", kernel.Image)
	vm.Kernel, vm.Initrd = kernel.Image, initrd
	return vm.Run(ctx)
}

// smokeFiles are all that the smoke guest has.
func smokeFiles(ctx context.Context, repo, cache string, logf func(format string, args ...any)) ([]File, error) {
	files, err := GuestFiles(ctx, repo, cache, append(slices.Clone(productCommands),
		GuestCommand{"./qemu/guest/smoke", "bin/smoke"}, GuestCommand{"./qemu/guest/init", "init"}))
	if err != nil {
		return nil, err
	}
	etc, err := etcFiles(filepath.Join(repo, "qemu", "guest", "etc"))
	if err != nil {
		return nil, err
	}
	models, err := guestModels(repo, logf)
	return append(append(files, etc...), models...), err
}
