// Command smoke boots the smoke guest and shows a person what happens. It exits
// with status 0 only if every part of it passed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"capgpu/qemu"
)

func main() {
	os.Exit(run())
}

func run() int {
	broken := flag.String("break", "", "break this `part` of the guest on purpose, to see the run fail")
	flag.Parse()
	if flag.NArg() != 0 {
		fmt.Fprintln(os.Stderr, "smoke: takes no arguments")
		return 2
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()

	start := time.Now()
	s := qemu.Smoke{
		Break: *broken,
		Line: func(line string) {
			fmt.Printf("%6.1fs guest| %s\n", time.Since(start).Seconds(), line)
		},
		Logf: func(format string, args ...any) {
			fmt.Printf("%6.1fs host | %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
		},
	}
	s.Logf("building the guest")
	checks, _, err := s.Run(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "\nrun-gpu-mock: FAIL after %.1f s: %v\n", time.Since(start).Seconds(), err)
		return 1
	}

	fmt.Printf("\nrun-gpu-mock: PASS, %d checks in %.1f s\n", checks, time.Since(start).Seconds())
	return 0
}
