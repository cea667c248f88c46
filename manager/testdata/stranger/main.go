// Command stranger must not be served by device-manager: it is a gate that is not confined,
// and a driver that makes a forbidden system call.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/internal/sandbox"
)

func main() {
	if _, err := unix.GetsockoptInt(4, unix.SOL_SOCKET, unix.SO_TYPE); err != nil { // a gate has its link only
		conn, err := control.NewConn(3, control.ConnOptions{Descriptors: true})
		if err == nil {
			_, err = control.NewCaller(conn).Call(context.Background(), control.TypeAwaitClient, nil, nil)
		}
		fmt.Fprintln(os.Stderr, err)
		return
	}
	if err := sandbox.Enter(sandbox.Driver, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, err := os.ReadFile("/etc/passwd")
	fmt.Fprintln(os.Stderr, err)
}
