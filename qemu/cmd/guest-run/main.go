// Command guest-run runs a static Linux program as root in a virtual machine that has vfio,
// an IOMMU and edu functions, prints the program's output, and exits with its status.
//
//	CGO_ENABLED=0 go test -c -o /tmp/iommu.test ./iommu
//	go run ./qemu/cmd/guest-run /tmp/iommu.test -test.v
//
// The program finds the functions' addresses in CAPGPU_HW, separated by commas; a
// line "capgpu-host: device_del edu0" that it prints unplugs the first. Its status
// is 124 if the time was up and 125 if it could not be run. If the emulator fails, the
// guest is booted again, and standard error says so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"capgpu/qemu"
)

// Exit statuses when there is no status of the program.
const (
	statusTimeout = 124
	statusError   = 125
)

func main() { os.Exit(run()) }

func run() int {
	g := qemu.GuestRun{Files: map[string]string{}, Output: os.Stdout}
	flag.IntVar(&g.Functions, "edu", 2, "`number` of edu functions")
	flag.DurationVar(&g.Timeout, "timeout", 2*time.Minute, "for all of it")
	flag.IntVar(&g.MemoryMiB, "mem", 1024, "`MiB` of memory")
	verbose := flag.Bool("v", false, "show the guest's console on standard error")
	flag.Func("file", "`host=guest`: put a file into the guest (repeatable)", func(s string) error {
		from, to, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want host=guest")
		}
		g.Files[to] = from
		return nil
	})
	flag.Func("env", "`NAME=value` for the program (repeatable)", func(s string) error {
		g.Env = append(g.Env, s)
		return nil
	})
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "guest-run: which program? usage: guest-run [flags] PROGRAM ARGS…")
		flag.PrintDefaults()
		return statusError
	}

	g.Program, g.Args = flag.Arg(0), flag.Args()[1:]
	g.Logf = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "guest-run: "+format+"\n", args...) }
	g.Again = func() {
		g.Logf("the emulator failed, and the guest is booted again: what the program has printed so far counts no more")
	}
	if *verbose {
		g.Console = func(line string) { fmt.Fprintln(os.Stderr, "console|", line) }
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	status, err := g.Run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest-run:", err)
		if errors.Is(err, qemu.ErrTimeout) {
			return statusTimeout
		}
		return statusError
	}

	return status
}
