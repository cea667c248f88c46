// Command run is the first process of the guest of guest-run: it runs one program and reports
// how that ended.
//
// The program's output goes to a port of its own, unchanged. Its end goes to another, which
// is taken before the program starts and can be taken once: no output of the program can pass
// for a status.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"capgpu/qemu/guest/boot"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "run: this is the first process of a guest and nothing else; see qemu/doc.go")
		os.Exit(2)
	}

	if err := boot.Prepare(); err != nil {
		fmt.Println("init:", err)
		boot.PowerOff()
	}

	status, err := boot.OpenPort(boot.StatusPort)
	if err != nil {
		fmt.Println("init:", err)
		boot.PowerOff()
	}

	if err := json.NewEncoder(status).Encode(run()); err != nil {
		fmt.Println("init: tell how the program ended:", err)
	}

	boot.PowerOff()
}

// run runs the program to its end.
func run() (ended boot.Status) {
	fail := func(err error) boot.Status { return boot.Status{Error: err.Error()} }
	var job boot.Job
	text, err := os.ReadFile("/" + boot.JobPath)
	if err != nil {
		return fail(err)
	}
	if err := json.Unmarshal(text, &job); err != nil {
		return fail(fmt.Errorf("%s: %w", boot.JobPath, err))
	}
	if err := boot.LoadModules(); err != nil {
		return fail(err)
	}

	functions, err := boot.Functions("0x1234", "0x11e8")
	if err != nil {
		return fail(err)
	}
	if len(functions) != job.Functions {
		return fail(fmt.Errorf("%d edu functions are there, want %d", len(functions), job.Functions))
	}

	out, err := boot.OpenPort(boot.OutputPort)
	if err != nil {
		return fail(err)
	}

	env := append([]string{"PATH=/bin", "HOME=/tmp", "CAPGPU_HW=" + strings.Join(functions, ",")}, job.Env...)
	pid, err := syscall.ForkExec(job.Args[0], job.Args, &syscall.ProcAttr{Env: env, Dir: "/tmp", Files: []uintptr{0, out.Fd(), out.Fd()}})
	if err != nil {
		return fail(fmt.Errorf("start %s: %w", job.Args[0], err))
	}

	status, err := reapUntil(pid)
	if err != nil {
		return fail(err)
	}
	if status.Signaled() {
		return boot.Status{Signal: int(status.Signal())}
	}

	return boot.Status{Exit: status.ExitStatus()}
}

// reapUntil waits for a child, and for every orphan on the way.
func reapUntil(child int) (unix.WaitStatus, error) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the program: %w", err)
		case pid == child && !status.Stopped() && !status.Continued():
			return status, nil
		}
	}
}
