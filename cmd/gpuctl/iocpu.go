package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"

	"capgpu/accel/iocpu"
	"capgpu/client"
)

// iocpuCmd is the endpoint of docs/iocpu.md.
type iocpuCmd struct {
	Topology string `required:"" help:"The machine: its sips, cubes, PEs, memories and costs, as JSON." placeholder:"FILE"`
	Buffers  string `help:"Folder of the files that host_buffer_ref may name. Default: none." placeholder:"DIR"`
	Listen   string `help:"Serve each connection on a UNIX socket as a host of its own, until Ctrl-C. Default: standard input and output." placeholder:"PATH"`
}

func (c *iocpuCmd) Run(ctx context.Context, a *app) error {
	f, err := os.Open(c.Topology)
	if err != nil {
		return err
	}
	topology, err := iocpu.ParseTopology(f)
	f.Close()
	if err != nil {
		return err
	}
	var buffers fs.FS
	if c.Buffers != "" {
		root, err := os.OpenRoot(c.Buffers)
		if err != nil {
			return err
		}
		defer root.Close()
		buffers = root.FS()
	}
	conn, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()

	if c.Listen != "" {
		return a.serve(ctx, c.Listen, func(ctx context.Context, host net.Conn) error {
			defer host.Close()
			defer context.AfterFunc(ctx, func() { host.Close() })()
			return endpoint(ctx, conn, topology, buffers, host, host)
		})
	}
	ended := make(chan error, 1)
	go func() { ended <- endpoint(ctx, conn, topology, buffers, a.in, a.out) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err() // standard input may never end; the process does
	}
}

func endpoint(ctx context.Context, conn *client.Conn, t iocpu.Topology, buffers fs.FS, in io.Reader, out io.Writer) error {
	e, err := iocpu.New(ctx, conn, t, buffers)
	if err != nil {
		return err
	}
	err = e.Serve(ctx, in, out)
	return errors.Join(err, e.Close())
}
