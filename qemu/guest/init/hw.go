package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"capgpu/qemu/guest/boot"
)

// noManager: the client of the hardware guest starts managers itself.
const noManager = -1

// runHardware runs the client of the hardware guest and returns how many checks passed.
func runHardware(broken string) (checks int, err error) {
	if err := boot.LoadModules(); err != nil {
		return 0, err
	}

	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}

	defer r.Close()
	args := []any{"-break=" + broken}
	for _, name := range []string{"seed", "kills"} {
		if value := boot.Argument("capgpu." + name); value != "" {
			args = append(args, "-"+name+"="+value)
		}
	}

	client, err := start(os.Stdout, os.Stdout, "/bin/hw", append(args, w)...)
	w.Close()
	if err != nil {
		return 0, err
	}
	if checks, err = awaitClient(client, noManager, r); err != nil {
		return 0, err
	}

	// Processes that its managers started and did not reap are our children now.
	if left, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); !errors.Is(err, unix.ECHILD) {
		return checks, fmt.Errorf("processes are left behind (%s; wait4: %d, %v)", processes(), left, err)
	}

	return checks, nil
}
