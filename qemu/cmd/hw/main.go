// Command hw boots the hardware guest and shows a person what happens. It exits with
// status 0 only if every part of it passed.
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
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random moments at which drivers are killed")
	kills := flag.Uint("kills", 100, "how `often` drivers are killed")
	flag.Parse()
	if flag.NArg() != 0 {
		fmt.Fprintln(os.Stderr, "hw: takes no arguments")
		return 2
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()

	start := time.Now()
	s := qemu.Hardware{
		Break: *broken,
		Args:  []string{fmt.Sprintf("capgpu.seed=%d", *seed), fmt.Sprintf("capgpu.kills=%d", *kills)},
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
		fmt.Fprintf(os.Stderr, "\nrun-gpu-edu: FAIL after %.1f s: %v\n", time.Since(start).Seconds(), err)
		return 1
	}

	fmt.Printf("\nrun-gpu-edu: PASS, %d checks in %.1f s\n", checks, time.Since(start).Seconds())
	return 0
}
