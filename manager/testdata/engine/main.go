// Command engine is an engine process without a device: it answers each order on its link with
// the same bytes. Its name says what it does wrong.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpu/backend/engine/control"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/internal/sandbox"
	"capgpu/program"
)

const link, manager = 3, 4

func main() {
	name := filepath.Base(os.Args[0])
	if name != "engine-open" {
		if err := sandbox.Seal(sandbox.Sealed{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	say(control.FromEngine{Ready: &wire.Device{
		Name: "a scripted device", Driver: "script 1.0", OffsetAlign: 16, SubgroupSize: 32, MaxThreadsPerBlock: 1024,
		MaxBlock: program.Dim3{X: 1024, Y: 1024, Z: 64}, MaxGrid: program.Dim3{X: 65535, Y: 65535, Z: 65535},
		MaxBindings: 33, MaxPushBytes: 256, MaxBindingBytes: 1 << 27,
	}})

	go func() {
		b := make([]byte, control.MaxBytes)
		for {
			n, err := unix.Read(manager, b)
			if err != nil || n == 0 {
				return
			}
			m, err := control.ParseToEngine(b[:n])
			if err == nil && name != "engine-silent" {
				say(control.FromEngine{Tested: m.Test})
			}
		}
	}()
	b := make([]byte, 4096)
	for {
		n, err := unix.Read(link, b)
		if err != nil || n == 0 {
			time.Sleep(time.Hour) // the manager ends it
		}
		if string(b[:n]) == "look" {
			_, err := os.ReadFile("/etc/passwd") // which ends it
			b = append(b[:0], fmt.Sprint(err)...)
			n = len(b)
		}
		_, _ = unix.Write(link, b[:n])
	}
}

func say(m control.FromEngine) {
	if _, err := unix.Write(manager, m.Bytes()); err != nil {
		os.Exit(1)
	}
}
