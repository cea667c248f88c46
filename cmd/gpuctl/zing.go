package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/accel/zing"
	"capgpu/client"
)

// zingCmd serves guests of the Zing ABI: docs/zing.md.
type zingCmd struct {
	Listen  string   `help:"Serve each connection on a UNIX socket as a guest of its own, until Ctrl-C." placeholder:"PATH"`
	Module  []string `help:"A module that guests may name, as ID=FILE; or a JSON file with several: {\"modules\": {\"ID\": \"FILE\"}}. Repeat for more." placeholder:"ID=FILE" sep:"none"`
	Device  []uint32 `help:"Index of a device that guests are shown. Repeat for more. Default: all." placeholder:"N" short:"d"`
	NoExt   bool     `help:"Do not offer cap.accel.ext.v1."`
	Record  string   `help:"Write a transcript of the guest's calls." placeholder:"FILE" xor:"transcript"`
	Replay  string   `help:"Answer from a transcript, without a service and without a device." placeholder:"FILE" xor:"transcript"`
	Program []string `arg:"" optional:"" passthrough:"" help:"The guest and its arguments. It has the wire as descriptor 3."`
}

// maxGuests bounds the guests of a socket that are served at once.
const maxGuests = 64

func (c *zingCmd) Run(ctx context.Context, a *app) error {
	program := c.Program
	if len(program) > 0 && program[0] == "--" {
		program = program[1:]
	}
	switch {
	case (c.Listen == "") == (len(program) == 0):
		return usagef("name a guest to run, or a socket with --listen")
	case c.Listen != "" && c.Record+c.Replay != "":
		return usagef("a transcript is of one guest: --record and --replay go with a guest to run")
	}
	modules, err := zingModules(c.Module)
	if err != nil {
		return err
	}
	config := zing.Config{Modules: modules, Devices: c.Device, Ext: !c.NoExt, Stdout: a.out, Stderr: a.err}
	if c.Replay != "" {
		f, err := os.Open(c.Replay)
		if err != nil {
			return err
		}
		defer f.Close()
		h, err := zing.NewReplay(f)
		if err != nil {
			return err
		}
		return a.guest(ctx, h, program)
	}

	if config.Conn, err = a.dial(ctx); err != nil {
		return err
	}
	defer config.Conn.Close()
	if c.Listen != "" {
		return a.serve(ctx, c.Listen, func(ctx context.Context, conn net.Conn) error { return serveGuest(ctx, config, conn) })
	}
	if c.Record != "" {
		f, err := os.Create(c.Record)
		if err != nil {
			return err
		}
		defer f.Close()
		config.Record = f
	}
	h, err := zing.NewHost(ctx, config)
	if err != nil {
		return err
	}
	return a.guest(ctx, h, program)
}

// zingModules reads the config map.
func zingModules(args []string) (map[string][]byte, error) {
	files := map[string]string{}
	for _, arg := range args {
		if id, file, ok := strings.Cut(arg, "="); ok {
			files[id] = file
			continue
		}
		text, err := os.ReadFile(arg)
		if err != nil {
			return nil, err
		}
		var list struct {
			Modules map[string]string `json:"modules"`
		}
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.DisallowUnknownFields()
		if err := d.Decode(&list); err != nil {
			return nil, usagef("--module %s: write ID=FILE, or a file like {\"modules\": {\"ID\": \"FILE\"}}: %v", arg, err)
		}
		for id, file := range list.Modules {
			files[id] = file
		}
	}

	modules := map[string][]byte{}
	for id, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		bytes, err := io.ReadAll(io.LimitReader(f, client.MaxBundleBytes+1))
		f.Close()
		if err != nil {
			return nil, err
		}
		if len(bytes) == 0 || len(bytes) > client.MaxBundleBytes {
			return nil, usagef("--module %s: %s has no bytes, or more than %d", id, file, client.MaxBundleBytes)
		}
		modules[id] = bytes
	}
	return modules, nil
}

// guest runs a program with the wire as its descriptor 3, and ends as it ends. The host ends with
// it.
func (a *app) guest(ctx context.Context, h *zing.Host, program []string) (err error) {
	defer func() { err = errors.Join(err, h.Close()) }()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "wire"), os.NewFile(uintptr(pair[1]), "wire")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		theirs.Close()
		return err
	}

	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = a.in, a.out, a.err, []*os.File{theirs}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		conn.Close()
		return err
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = zing.Serve(ctx, conn, h) }) // the end of the guest says more
	err = cmd.Wait()
	conn.Close()
	serving.Wait()

	if differs := h.Err(); differs != nil {
		return differs
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return &failedWork{exit.ExitCode()}
	}
	return err
}

// serve answers each connection on a socket, at most maxGuests at once, until ctx ends.
func (a *app) serve(ctx context.Context, path string, each func(ctx context.Context, conn net.Conn) error) error {
	before := unix.Umask(0o177) // the socket is this user's
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(before)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	defer l.Close()

	var serving sync.WaitGroup
	defer serving.Wait()
	places := make(chan struct{}, maxGuests)
	for {
		places <- struct{}{}
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		serving.Go(func() {
			defer func() { <-places }()
			if err := each(ctx, conn); err != nil && ctx.Err() == nil {
				fmt.Fprintf(a.err, "%s: %s\n", a.command, visible(err.Error()))
			}
		})
	}
}

func serveGuest(ctx context.Context, config zing.Config, conn net.Conn) error {
	h, err := zing.NewHost(ctx, config)
	if err != nil {
		conn.Close()
		return err
	}
	err = zing.Serve(ctx, conn, h)
	return errors.Join(err, h.Close())
}
