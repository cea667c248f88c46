// Command init is PID 1 of the smoke guest.
//
// It prepares the system, starts device-manager as a host would, runs the smoke
// client against it, stops the manager, looks whether anything was left behind,
// and powers off. It alone writes the verdict, as the last line, after every
// step: a guest that dies on the way has none.
//
// The kernel argument capgpu.break=WHAT breaks the run on purpose, so that a
// test can see it fail: "panic", "hang" and "silent" act here, "manager" starts
// the manager with a policy that is not there; any other word goes to the smoke
// client, which knows "vecadd", "driver" and "leak" and refuses the rest.
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	policyPath = "/etc/capgpu/policy.json"
	runDir     = "/run/capgpu"
	auditPath  = "/var/lib/capgpu/audit.log"
	logPath    = "/var/log/device-manager.log"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: this is the first process of the smoke guest and nothing else; see qemu/doc.go")
		os.Exit(2)
	}
	os.Stdout.WriteString("\n") // ends the line that the firmware left open
	if err := mountAll(); err != nil {
		fmt.Println("not ok 1 - guest set-up:", err)
	} else {
		broken := breakArgument()
		switch broken {
		case "panic":
			os.Exit(1) // the kernel panics when PID 1 exits
		case "hang":
			for {
				_ = unix.Pause()
			}
		case "silent":
			powerOff()
		}
		report(runSmoke(broken))
	}
	powerOff()
}

// report gives the verdict.
func report(checks int, err error) {
	if err != nil {
		showLog()
		fmt.Println("capgpu-smoke: FAIL", err)
		return
	}
	fmt.Printf("capgpu-smoke: PASS %d checks\n", checks)
}

func mountAll() error {
	for _, m := range []struct{ kind, path, data string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devtmpfs", "/dev", ""},
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"tmpfs", "/run", "mode=0755"},
		{"tmpfs", "/tmp", "mode=1777"},
		{"cgroup2", "/sys/fs/cgroup", ""},
	} {
		if err := os.MkdirAll(m.path, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.path, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.path, err)
		}
	}
	return os.MkdirAll("/var/lib/capgpu", 0o700)
}

func breakArgument() string {
	line, _ := os.ReadFile("/proc/cmdline")
	for word := range strings.FieldsSeq(string(line)) {
		if what, ok := strings.CutPrefix(word, "capgpu.break="); ok {
			return what
		}
	}
	return ""
}

// showLog prints the end of the manager's log, for whoever has to find out.
func showLog() {
	const lines = 80
	log, err := os.ReadFile(logPath)
	if err != nil {
		fmt.Println("log:", err)
		return
	}
	all := strings.Split(strings.TrimSpace(string(log)), "\n")
	for _, line := range all[max(0, len(all)-lines):] {
		fmt.Println("log:", line)
	}
}

func powerOff() {
	// Wait until the serial port has sent everything (tcdrain).
	_ = unix.IoctlSetInt(1, unix.TCSBRK, 1)
	unix.Sync()
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	fmt.Println("init: power off:", err)
}
