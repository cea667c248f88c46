// Command gpu-gate serves one Cap'n Proto client of the GPU service.
//
// The device-manager starts one for each connection to a TENANT.capnp.sock:
//
//	descriptor 3   the client's connection (SOCK_STREAM)
//	descriptor 4   a tenant socket of the device-manager (SOCK_SEQPACKET)
//
// It holds nothing else and ends with its client. Its exit status:
//
//	0   the client closed the connection, or SIGTERM came
//	1   the client broke the protocol or stopped reading, or the service is gone
//	2   it was started wrongly
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gate"
	"capgpu/internal/cmdline"
	"capgpu/internal/crashpoint"
	"capgpu/internal/sandbox"
)

const (
	clientFD  = 3
	serviceFD = 4

	statusWrongStart = 2
	helloTimeout     = 5 * time.Second
)

const usage = `gpu-gate - serves one Cap'n Proto client of the GPU service

usage: gpu-gate [--verbose]

It is started by device-manager, once for each connection to a tenant's
TENANT.capnp.sock, and ends with that connection. It takes two descriptors:

  3   the client's connection: a connected UNIX socket of type SOCK_STREAM, on
      which it speaks Cap'n Proto RPC (schema/capos.capnp, GpuDeviceManager)
  4   a connected tenant socket of device-manager: UNIX, SOCK_SEQPACKET
      (docs/wire.md)

A gate has no privilege and needs none. What its client can do is what the
tenant may do. If a client manages to crash its gate, it loses its own
connection and nothing else.

  --verbose   log ordinary ends of a connection too
  --version   print the version and exit
  --help      print this and exit

exit status: 0 when the client closed the connection, or SIGTERM came; 1 when the
client broke the protocol or stopped reading, or the service is gone; 2 when it was
started wrongly: standard error says what is missing.
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := cmdline.New("gpu-gate")
	verbose := flags.Bool("verbose", false, "")
	switch done, err := cmdline.Parse(flags, args, usage, stdout); {
	case err != nil:
		cmdline.Wrong(stderr, "gpu-gate", err)
		return statusWrongStart
	case done:
		return 0
	}
	if err := errors.Join(
		checkSocket(clientFD, unix.SOCK_STREAM, "the client's connection (SOCK_STREAM)"),
		checkSocket(serviceFD, unix.SOCK_SEQPACKET, "a tenant socket (SOCK_SEQPACKET)"),
	); err != nil {
		fmt.Fprintf(stderr, "gpu-gate: %v\ngpu-gate is started by device-manager; see gpu-gate --help\n", err)
		return statusWrongStart
	}
	level := slog.LevelWarn
	if *verbose {
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	conn, err := takeClient()
	if err != nil {
		log.Error("take the client's connection", "error", err)
		return 1
	}
	defer conn.Close()
	if err := sandbox.Enter(sandbox.Gate, log); err != nil {
		log.Error("not confined", "error", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	err = serve(ctx, log, conn)
	if err != nil && ctx.Err() == nil {
		log.Warn("gate ended", "error", err)
		return 1
	}
	log.Info("gate ended")
	return 0
}

// checkSocket says what is wrong with a descriptor that should be a UNIX socket.
func checkSocket(fd, socketType int, what string) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return fmt.Errorf("descriptor %d is missing or no socket (%w): it must be %s", fd, err, what)
	}
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || domain != unix.AF_UNIX || got != socketType {
		return fmt.Errorf("descriptor %d is another kind of socket: it must be %s", fd, what)
	}
	unix.CloseOnExec(fd)
	return nil
}

func takeClient() (*net.UnixConn, error) {
	file := os.NewFile(clientFD, "client")
	defer file.Close() // FileConn duplicates
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil // checkSocket has looked
}

func serve(ctx context.Context, log *slog.Logger, conn *net.UnixConn) error {
	hello, cancel := context.WithTimeout(ctx, helloTimeout)
	crashpoint.Here("gate.start.confined")
	service, err := client.NewConn(hello, serviceFD)
	cancel()
	if err != nil {
		return fmt.Errorf("speak to the service: %w", err)
	}
	log = log.With("tenant", service.Tenant())
	crashpoint.Here("gate.start.greeted")
	return gate.Serve(ctx, conn, service, gate.Options{Log: log})
}
