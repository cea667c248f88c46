// Command gpu-gate serves one Cap'n Proto client of the GPU service.
//
// device-manager starts it in advance, and gives it a client that connects to a
// TENANT.capnp.sock:
//
//	descriptor 3   the link to device-manager (SOCK_SEQPACKET), on which the gate asks
//	               for a client (AwaitClient), once. The answer brings two descriptors:
//	               the client's connection (SOCK_STREAM) and a tenant socket of the
//	               client's tenant (SOCK_SEQPACKET)
//
// The process holds nothing else, serves that one client and ends with it. Its exit
// status:
//
//	0   the client closed the connection, SIGTERM came, or there was no client
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
	"capgpu/control"
	"capgpu/gate"
	"capgpu/gpuerr"
	"capgpu/internal/cmdline"
	"capgpu/internal/crashpoint"
	"capgpu/internal/sandbox"
)

const (
	linkFD = 3

	statusWrongStart = 2
	helloTimeout     = 5 * time.Second
)

const usage = `gpu-gate - serves one Cap'n Proto client of the GPU service

usage: gpu-gate [--verbose]

It is started by device-manager before there is a client, serves one connection
to a tenant's TENANT.capnp.sock, and ends with that connection. It takes one
descriptor:

  3   a connected UNIX socket of type SOCK_SEQPACKET, on which device-manager
      hands it the client's connection, on which it speaks Cap'n Proto RPC
      (schema/capos.capnp, GpuDeviceManager), and a tenant socket (docs/wire.md)

A gate has no privilege and needs none. What its client can do is what the
tenant may do. If a client manages to crash its gate, it loses its own
connection and nothing else.

  --verbose   log ordinary ends of a connection too
  --version   print the version and exit
  --help      print this and exit

exit status: 0 when the client closed the connection, SIGTERM came, or device-manager
had no client for it; 1 when the client broke the protocol or stopped reading, or the service is gone; 2 when it was
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

	if err := checkLink(); err != nil {
		fmt.Fprintf(stderr, "gpu-gate: %v\ngpu-gate is started by device-manager; see gpu-gate --help\n", err)
		return statusWrongStart
	}

	level := slog.LevelWarn
	if *verbose {
		level = slog.LevelInfo
	}

	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	if err := sandbox.Enter(sandbox.Gate, log); err != nil {
		log.Error("not confined", "error", err)
		return 1
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	conn, service, err := awaitClient(ctx)
	switch {
	case errors.Is(err, gpuerr.Disconnected) || ctx.Err() != nil:
		log.Info("gate ended without a client")
		return 0
	case err != nil:
		log.Error("take a client", "error", err)
		return 1
	}

	defer conn.Close()
	err = serve(ctx, log, conn, service)
	if err != nil && ctx.Err() == nil {
		log.Warn("gate ended", "error", err)
		return 1
	}

	log.Info("gate ended")
	return 0
}

// checkLink returns an error if this process was started with a wrong descriptor.
func checkLink() error {
	domain, err := unix.GetsockoptInt(linkFD, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return fmt.Errorf("descriptor %d is missing or no socket (%w): it must be a link to device-manager (SOCK_SEQPACKET)", linkFD, err)
	}
	kind, err := unix.GetsockoptInt(linkFD, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || domain != unix.AF_UNIX || kind != unix.SOCK_SEQPACKET {
		return fmt.Errorf("descriptor %d is another kind of socket: it must be a link to device-manager (SOCK_SEQPACKET)", linkFD)
	}
	unix.CloseOnExec(linkFD)
	return nil
}

// awaitClient asks for a client, and returns its connection and a tenant socket.
// The error is gpuerr.Disconnected if device-manager has none any more.
func awaitClient(ctx context.Context) (client *net.UnixConn, service int, err error) {
	link, err := control.NewConn(linkFD, control.ConnOptions{Descriptors: true})
	if err != nil {
		return nil, -1, err
	}

	caller := control.NewCaller(link)
	defer caller.Close()
	m, err := caller.Call(ctx, control.TypeAwaitClient, nil, nil)
	if err != nil {
		return nil, -1, err
	}

	file := os.NewFile(uintptr(m.FDs[0]), "client")
	defer file.Close() // FileConn duplicates
	conn, err := net.FileConn(file)
	if err != nil {
		unix.Close(m.FDs[1])
		return nil, -1, fmt.Errorf("the client's connection: %w", err)
	}

	client, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		unix.Close(m.FDs[1])
		return nil, -1, gpuerr.New(gpuerr.Protocol, "the client's connection is no UNIX socket")
	}

	return client, m.FDs[1], nil
}

func serve(ctx context.Context, log *slog.Logger, conn *net.UnixConn, socket int) error {
	hello, cancel := context.WithTimeout(ctx, helloTimeout)
	crashpoint.Here("gate.start.confined")
	service, err := client.NewConn(hello, socket)
	cancel()
	if err != nil {
		return fmt.Errorf("speak to the service: %w", err)
	}
	log = log.With("tenant", service.Tenant())
	crashpoint.Here("gate.start.greeted")
	return gate.Serve(ctx, conn, service, gate.Options{Log: log})
}
