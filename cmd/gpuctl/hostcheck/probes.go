package hostcheck

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"capgpu/internal/vulkanhost"
	"capgpu/iommu/trace"
)

// ThisHost is the local host.
func ThisHost() Host {
	return Host{Root: os.Geteuid() == 0, Probes: Probes{
		Landlock:     landlockABI,
		EBPF:         haveEBPF,
		Tracepoints:  trace.Supported,
		OpenFiles:    openFiles,
		LockedMemory: lockedMemory,
		Vulkan:       vulkanhost.Host{}.Devices,
		Library:      vulkanhost.Host{}.Library,
		Folder:       ownFolder,
	}}
}

func ownFolder() (string, error) {
	own, err := os.Executable()
	return filepath.Dir(own), err
}

func landlockABI() int {
	abi, err := landlock.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return abi
}

func haveEBPF() error {
	for _, f := range []struct {
		name string
		err  error
	}{
		{"ring buffers", features.HaveMapType(ebpf.RingBuf)},
		{"raw tracepoint programs", features.HaveProgramType(ebpf.RawTracepoint)},
		{"cgroup-device programs", features.HaveProgramType(ebpf.CGroupDevice)},
	} {
		if f.err != nil {
			return fmt.Errorf("%s: %w", f.name, f.err)
		}
	}
	return nil
}

func openFiles() (uint64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return limit.Max, err
}

// lockedMemory returns the limit of pinned memory. With CAP_IPC_LOCK there is none
// (drivers/vfio/vfio_iommu_type1.c, vfio_lock_acct).
func lockedMemory() (uint64, error) {
	status, err := text("/proc/self/status")
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if err != nil {
				return 0, errors.New("this process's capabilities cannot be read")
			}
			if caps&(1<<unix.CAP_IPC_LOCK) != 0 {
				return math.MaxUint64, nil
			}
		}
	}

	var limit unix.Rlimit
	err = unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit)
	return limit.Cur, err
}
