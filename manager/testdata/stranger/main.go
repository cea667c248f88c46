// Command stranger is what device-manager must not serve: a gate that is not
// confined, and a driver that makes a forbidden system call.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/internal/sandbox"
)

func main() {
	kind, err := unix.GetsockoptInt(4, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if kind == unix.SOCK_SEQPACKET { // a gate: descriptor 4 is a tenant socket
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := client.NewConn(ctx, 4)
		fmt.Fprintln(os.NewFile(3, "client"), err)
		return
	}
	if err := sandbox.Enter(sandbox.Driver, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, err = os.ReadFile("/etc/passwd")
	fmt.Fprintln(os.Stderr, err)
}
