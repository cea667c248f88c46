// Command gpuctl shows the GPUs of a capgpu service and runs programs on them.
//
// It is an ordinary client of the tenant socket: it can do what the tenant's policy
// allows and nothing else. Its exit status is:
//
//	0    all is well
//	1    the work failed, or a log that was checked is not intact
//	2    the command line is wrong
//	3    the service cannot be reached, or was lost meanwhile
//	4    the service refused (quota, policy, no such device or program)
//	130  interrupted by Ctrl-C; the work was cancelled
//
// With --json every command prints exactly one JSON value on standard output,
// an error included: {"error": {"code": ..., "message": ..., "hint": ...}}.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	a := &app{
		in:        os.Stdin,
		out:       os.Stdout,
		err:       os.Stderr,
		getenv:    os.Getenv,
		errIsTerm: isTerminal(int(os.Stderr.Fd())),
		now:       time.Now,
	}

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			if s == os.Interrupt && a.answering.interrupt() {
				continue
			}
			signal.Stop(signals) // a second Ctrl-C ends a gpuctl that hangs
			cancel()
		}
	}()

	os.Exit(a.run(ctx, os.Args[1:]))
}

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}
