package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kong"

	"capgpu/client"
)

// app is gpuctl with its environment, so that tests can run it in process.
type app struct {
	in        io.Reader
	out       io.Writer
	err       io.Writer
	getenv    func(string) string
	errIsTerm bool
	now       func() time.Time

	socket  string // of the command line
	json    bool
	command string // "gpuctl run", for hints

	answering answer
}

type cli struct {
	Socket string `help:"Tenant socket of the service. Default: $$CAPGPU_SOCKET, else that of device-manager --dev if it runs, else /run/capgpu/default.sock." placeholder:"PATH" short:"s"`
	JSON   bool   `help:"Print one JSON value instead of text." name:"json" short:"j"`

	PrintVersion versionFlag `help:"Print the version and exit." name:"version" hidden:""` // help shows only the command version

	Devices  devicesCmd  `cmd:"" help:"List the devices of this tenant."`
	Sessions sessionsCmd `cmd:"" help:"List the open sessions of this tenant on a device."`
	Budget   budgetCmd   `cmd:"" help:"Show what this tenant uses of its limits."`
	Metrics  metricsCmd  `cmd:"" help:"Print counters of the devices and of this tenant, as Prometheus reads them."`
	Programs programsCmd `cmd:"" help:"List the programs of a device, with their bindings."`
	Run      runCmd      `cmd:"" help:"Run a program on files or generated input."`
	Check    checkCmd    `cmd:"" help:"Run a program here, without a device, and report data races and other mistakes."`
	Disasm   disasmCmd   `cmd:"" help:"Show a module as text, with the verifier's verdict."`
	Generate generateCmd `cmd:"" help:"Go on with a text, by a language model on a device."`
	Chat     chatCmd     `cmd:"" help:"Talk with a language model on a device."`
	Zing     zingCmd     `cmd:"" help:"Run a guest of the Zing ABI, or serve guests on a socket."`
	IOCPU    iocpuCmd    `cmd:"" name:"iocpu" help:"Answer a host's requests to an IO_CPU, as lines of JSON."`
	Audit    auditCmd    `cmd:"" help:"Read or check an audit log file."`
	Upgrade  upgradeCmd  `cmd:"" help:"Replace the driver of a device by the one that is installed now, while its sessions work. For the operator."`
	Suspend  suspendCmd  `cmd:"" help:"Have a device begin nothing until it is resumed; its sessions stay. For the operator."`
	Resume   resumeCmd   `cmd:"" help:"End a suspend. For the operator."`
	Doctor   doctorCmd   `cmd:"" help:"Look whether this host has what real hardware needs, and what to change."`
	Version  versionCmd  `cmd:"" help:"Print the version of gpuctl."`
}

const description = `Look at the GPUs of a capgpu service and run programs on them.

Exit status: 0 ok; 1 the work failed; 2 wrong usage; 3 the service cannot be reached; 4 the service refused; 130 interrupted.`

// exitPanic carries kong's wish to exit out of its parser.
type exitPanic int

// run is main without the process: it returns the exit status.
func (a *app) run(ctx context.Context, args []string) (code int) {
	defer func() {
		if p := recover(); p != nil {
			exit, ok := p.(exitPanic)
			if !ok {
				panic(p)
			}
			code = int(exit)
		}
	}()

	var c cli
	parser, err := kong.New(&c,
		kong.Name("gpuctl"),
		kong.Description(description),
		kong.Writers(a.out, a.err),
		kong.Bind(a),
		kong.Exit(func(code int) { panic(exitPanic(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 90}),
	)
	if err != nil {
		panic(err) // the struct tags above are wrong; every test would fail
	}

	a.json, a.command = wantsJSON(args), "gpuctl"
	kctx, err := parser.Parse(joinNegative(args))
	if err != nil {
		return a.failParse(ctx, err)
	}

	a.socket, a.json, a.command = c.Socket, c.JSON, kctx.Selected().FullPath()
	kctx.BindTo(ctx, (*context.Context)(nil))
	if err := kctx.Run(a); err != nil {
		return a.fail(ctx, err)
	}

	return exitOK
}

// fail prints an error and returns its exit status.
func (a *app) fail(ctx context.Context, err error) int {
	r := a.reportOf(ctx, err)
	switch {
	case r.silent:
	case a.json:
		a.printJSON(struct {
			Error report `json:"error"`
		}{r})
	default:
		fmt.Fprintf(a.err, "gpuctl: %s\n  %s\n", visible(r.Message), visible(r.Hint))
	}
	return r.exit
}

func (a *app) printJSON(v any) { a.encodeJSON(v, "  ") }

// printJSONLine is printJSON on one line.
func (a *app) printJSONLine(v any) { a.encodeJSON(v, "") }

func (a *app) encodeJSON(v any, indent string) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", indent)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // a type that JSON cannot hold; every test would fail
	}
	_, _ = io.WriteString(a.out, visibleJSON(b.String())) // nobody is left to learn that standard output is gone
}

// socketPath finds the tenant socket.
func (a *app) socketPath() string {
	if a.socket != "" {
		return a.socket
	}
	return client.DefaultSocket(a.getenv)
}

// dialTimeout bounds gpuctl's wait for an answer about the service; work on the
// device has its own deadline.
const dialTimeout = 10 * time.Second

func (a *app) dial(ctx context.Context) (*client.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	path := a.socketPath()
	c, err := client.Dial(ctx, path)
	if err != nil {
		return nil, &dialError{path: path, err: err}
	}
	return c, nil
}
