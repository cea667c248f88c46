// Command init is PID 1 of the smoke guest and of the hardware guest
// (capgpu.suite=hw).
//
// It prepares the system, starts device-manager as a host would, runs the smoke
// client against it, stops the manager, looks whether anything was left behind,
// and powers off. In the hardware guest it loads vfio and leaves the manager to the
// client, which has to kill it. It alone writes the verdict, as the last line, after every
// step: a guest that dies on the way has none.
//
// The kernel argument capgpu.break=WHAT breaks the run on purpose, so that a
// test can see it fail: "panic", "hang" and "silent" act here, "manager" starts
// the manager with a policy that is not there; any other word goes to the
// suite's client, which knows some and refuses the rest.
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"capgpu/qemu/guest/boot"
)

const (
	policyPath = "/etc/capgpu/policy.json"
	runDir     = "/run/capgpu"
	auditPath  = "/var/lib/capgpu/audit.log"
	logPath    = "/var/log/device-manager.log"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: this is the first process of a guest and nothing else; see qemu/doc.go")
		os.Exit(2)
	}

	os.Stdout.WriteString("\n") // ends the line that the firmware left open
	if err := boot.Prepare(); err != nil {
		fmt.Println("not ok 1 - guest set-up:", err)
	} else {
		broken := boot.Argument("capgpu.break")
		switch broken {
		case "panic":
			os.Exit(1) // the kernel panics when PID 1 exits
		case "hang":
			for {
				_ = unix.Pause()
			}
		case "silent":
			boot.PowerOff()
		}
		suite, run := "smoke", runSmoke
		if boot.Argument("capgpu.suite") == "hw" {
			suite, run = "hw", runHardware
		}
		report(suite, run, broken)
	}

	boot.PowerOff()
}

// report runs a suite and gives the verdict.
func report(suite string, run func(broken string) (checks int, err error), broken string) {
	checks, err := run(broken)
	if err != nil {
		showLog()
		fmt.Printf("capgpu-%s: FAIL %v\n", suite, err)
		return
	}
	fmt.Printf("capgpu-%s: PASS %d checks\n", suite, checks)
}

// showLog prints the end of the manager's log, to find the cause.
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
