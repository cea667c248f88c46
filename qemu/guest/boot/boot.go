// Package boot has the common acts of the first process of every guest: mounts, modules,
// ports to the host, and the end.
package boot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// Ready is the first line of a guest. A guest that stands still before it stands still in the
// emulator: the kernel was booting, or Prepare under way.
const Ready = "boot: the guest is ready"

// Prepare turns the initramfs into a host: a root that can be changed for another, the usual
// file systems, and room for open files. It prints Ready in the end.
func Prepare() error {
	if err := prepare(); err != nil {
		return err
	}
	_, err := os.Stdout.WriteString(Ready + "\n")
	return err
}

func prepare() error {
	if err := leaveRootfs(); err != nil {
		return err
	}
	if err := mount(); err != nil {
		return err
	}
	if err := useControllers(); err != nil {
		return err
	}
	limit := unix.Rlimit{Cur: openFiles, Max: openFiles}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise the limit of open files: %w", err)
	}
	return os.MkdirAll("/var/lib/capgpu", 0o700)
}

// openFiles is systemd's default upper limit for a service.
const openFiles = 512 << 10

// leaveRootfs puts a mount of the initramfs over itself: the kernel's first root
// has no parent, and pivot_root (fs/namespace.c, 6.12) wants one.
func leaveRootfs() error {
	const place = "/mnt"
	if err := unix.Mount("/", place, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind the root: %w", err)
	}
	if err := os.Chdir(place); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	return os.Chdir("/")
}

func mount() error {
	for _, m := range []struct{ kind, path, data string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devtmpfs", "/dev", ""},
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"tmpfs", "/run", "mode=0755"},
		{"tmpfs", "/tmp", "mode=1777"},
		{"cgroup2", "/sys/fs/cgroup", ""},
		{"tracefs", "/sys/kernel/tracing", ""},
	} {
		if err := os.MkdirAll(m.path, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.path, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.path, err)
		}
	}

	return nil
}

// FirstGroup is an empty cgroup that is always there.
const FirstGroup = "first"

// useControllers makes the first cgroup with controllers while no other process runs, as an
// init system does. The kernel patches its own code then (static keys, mm/memcontrol.c, Linux
// 6.12), and QEMU's emulation with threads (7.2) sometimes continues with an instruction that
// it has translated in the middle of that: seen as "Oops: int3" of a device-manager that made
// the first one.
func useControllers() error {
	const root = "/sys/fs/cgroup"
	if err := os.Mkdir(filepath.Join(root, FirstGroup), 0o755); err != nil {
		return fmt.Errorf("make a cgroup: %w", err)
	}
	if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory +pids +hugetlb"), 0); err != nil {
		return fmt.Errorf("use the controllers of cgroups: %w", err)
	}
	return nil
}

// moduleCompressed is MODULE_INIT_COMPRESSED_FILE (linux/module.h, 6.12): the
// kernel unpacks the module.
const moduleCompressed = 4

// LoadModules loads all of /lib/modules in the order of the names.
func LoadModules() error {
	files, err := filepath.Glob("/lib/modules/*")
	if err != nil {
		return err
	}

	sort.Strings(files)
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", moduleCompressed)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}

	return nil
}

// Functions are the addresses of all PCI functions of a vendor and a device,
// such as "0x1234" and "0x11e8", in order.
func Functions(vendor, device string) ([]string, error) {
	dirs, err := filepath.Glob("/sys/bus/pci/devices/*")
	if err != nil {
		return nil, err
	}

	sort.Strings(dirs)
	var found []string
	for _, dir := range dirs {
		v, err1 := os.ReadFile(filepath.Join(dir, "vendor"))
		d, err2 := os.ReadFile(filepath.Join(dir, "device"))
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		if strings.TrimSpace(string(v)) == vendor && strings.TrimSpace(string(d)) == device {
			found = append(found, filepath.Base(dir))
		}
	}

	return found, nil
}

// OpenPort opens a port to the host (a virtserialport of QEMU) by its name. A port can be
// open once; when a write returns, the host has read it.
func OpenPort(name string) (*os.File, error) {
	ports, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, path := range ports {
		if said, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(said)) == name {
			return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(path))), os.O_RDWR, 0)
		}
	}
	return nil, fmt.Errorf("the host has given no port %q", name)
}

// Argument is the value of NAME=value on the kernel's command line.
func Argument(name string) string {
	line, _ := os.ReadFile("/proc/cmdline")
	for word := range strings.FieldsSeq(string(line)) {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value
		}
	}
	return ""
}

// PowerOff ends the machine. It returns only if that fails.
func PowerOff() {
	// Wait until the serial port has sent everything (tcdrain).
	_ = unix.IoctlSetInt(1, unix.TCSBRK, 1)
	unix.Sync()
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	fmt.Println("init: power off:", err)
}
