package qemu

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

//go:embed testdata/smoke.golden
var smokeGolden string

//go:embed testdata/lifecycle.golden
var lifecycleGolden string

// SmokeTimeout bounds one run, boot to power-off. A run takes a third of it on
// two cores that have other work as well.
const SmokeTimeout = 90 * time.Second

// SmokeGolden is what the client and init must say in a smoke run.
func SmokeGolden() Golden { return ParseGolden(smokeGolden) }

// LifecycleGolden is what the manager must say beside it.
func LifecycleGolden() Golden { return ParseGolden(lifecycleGolden) }

// Smoke is one run of the smoke guest.
type Smoke struct {
	Break   string        // what to break on purpose (see guest/init); "" = nothing
	Timeout time.Duration // 0 = SmokeTimeout
	Line    func(string)  // each line of the console as it comes; may be nil
	Logf    func(format string, args ...any)
}

// Run gets the kernel, builds the initramfs, boots it and judges what it said.
// The error is nil only if everything passed.
func (s Smoke) Run(ctx context.Context) (checks int, transcript Transcript, err error) {
	repo, err := RepoRoot()
	if err != nil {
		return 0, nil, err
	}
	cache := CacheDir(repo)
	kernel, err := Kernel(ctx, cache, s.Logf)
	if err != nil {
		return 0, nil, err
	}
	files, err := GuestFiles(ctx, repo, cache)
	if err != nil {
		return 0, nil, err
	}
	// A file of its own for each run: two may run at once.
	initrd, err := os.CreateTemp(cache, "initramfs-*.cpio")
	if err != nil {
		return 0, nil, err
	}
	defer os.Remove(initrd.Name())
	err = WriteInitramfs(initrd, files)
	if closeErr := initrd.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return 0, nil, fmt.Errorf("write the initramfs: %w", err)
	}
	s.Logf("booting %s", filepath.Base(kernel))

	vm := VM{Kernel: kernel, Initrd: initrd.Name(), MemoryMiB: 1024, CPUs: 2, Timeout: s.Timeout, Line: s.Line}
	if vm.Timeout == 0 {
		vm.Timeout = SmokeTimeout
	}
	if s.Break != "" {
		vm.Append = append(vm.Append, "capgpu.break="+s.Break)
	}
	transcript, err = vm.Run(ctx)
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
