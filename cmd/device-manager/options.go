package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"capgpu/internal/cmdline"
	"capgpu/manager"
)

const usage = `device-manager - owns GPUs and hands them out as capabilities

usage: device-manager --dev [--vulkan | --engine lane]
       device-manager --policy FILE [--run-dir DIR] [--state DIR] [--audit FILE]
       device-manager --check-policy [--policy FILE] [--run-dir DIR] [--json]
       device-manager --list-functions [--json]

It reads the policy, takes the functions that it names from their drivers, opens
two sockets for each tenant in the run directory (TENANT.sock for the Go client
and gpuctl, TENANT.capnp.sock for Cap'n Proto), starts a driver for each function,
and replaces it when it dies. When it stops, functions get their drivers back.

  --dev              developer mode: no root, the fake function, tenants default
                     (everything), memory-only and limited, for this user only;
                     the run directory is $XDG_RUNTIME_DIR/capgpu or a folder of
                     the temporary directory. --policy replaces those tenants.
  --vulkan           with --dev: serve this host's first Vulkan device, or lavapipe,
                     instead of the fake function (docs/gpus.md)
  --engine lane      with --dev: serve a device in software that engine processes
                     run, as they run a GPU
  --policy FILE      who may do what, as JSON (default /etc/capgpu/policy.json);
                     an example is packaging/policy.json
  --run-dir DIR      where the sockets are (default /run/capgpu)
  --state DIR        where it notes which functions it has taken, so that the next
                     device-manager finds them after a crash (default
                     /var/lib/capgpu; with --dev the run directory)
  --audit FILE       the audit log (default: the policy's, or audit.log in the
                     run directory); what is full is beside it, as FILE.000001
                     and so on, as much as the policy keeps; the logs of devices,
                     drivers and tenants are in FILE.d
  --driver PATH      the driver of the fake function (default gpu-mock beside
                     this program)
  --service PATH     the driver of hardware functions for which the policy names no
                     other (default gpu-service beside this program)
  --gate PATH        the Cap'n Proto gate (default gpu-gate beside this program)
  --engine-launcher PATH
                     the program that confines itself and becomes an engine
                     (default gpu-engine-launch beside this program); the engines
                     gpu-engine-KIND are beside it
  --log-format F     text or json: the log for machines, on standard error
                     (default text; with --dev and without this, errors only)
  --list-functions   print which PCI functions of this host could be taken, or why
                     not, and exit; * marks those that "claim": "all" takes; with
                     --json for programs
  --check-policy     read the policy as a start would, print what is in it and, if
                     a device-manager runs in the run directory, what a reload
                     would change, and exit: with 1 if the policy would be
                     refused; with --json for programs
  --version          print the version and exit
  --help             print this and exit

signals: SIGTERM and SIGINT stop everything in order; SIGHUP reads the policy
again and applies what it says of tenants; the rest needs a restart.

exit status: 0 after an orderly stop, 1 when something failed, 2 for a wrong
command line.

example: device-manager --dev
         gpuctl devices
`

// options is the command line, completed.
type options struct {
	dev        bool
	policyPath string // empty: the built-in policy of developer mode
	runDir     string
	state      string
	audit      string // empty: as the policy says
	driver     string
	service    string
	gate       string
	launcher   string
	vulkan     bool
	engine     string // "lane", or empty
	logFormat  string
}

// parseOptions reports done if the command line only asked for information; err is
// then an error of printing it.
func parseOptions(args []string, stdout io.Writer) (o *options, done bool, err error) {
	o = &options{}
	flags := cmdline.New("device-manager")
	flags.BoolVar(&o.dev, "dev", false, "")
	flags.StringVar(&o.policyPath, "policy", "", "")
	flags.StringVar(&o.runDir, "run-dir", "", "")
	flags.StringVar(&o.audit, "audit", "", "")
	flags.StringVar(&o.state, "state", "", "")
	flags.StringVar(&o.driver, "driver", "", "")
	flags.StringVar(&o.service, "service", "", "")
	flags.StringVar(&o.gate, "gate", "", "")
	flags.StringVar(&o.launcher, "engine-launcher", "", "")
	flags.BoolVar(&o.vulkan, "vulkan", false, "")
	flags.StringVar(&o.engine, "engine", "", "")
	flags.StringVar(&o.logFormat, "log-format", "", "")
	list := flags.Bool("list-functions", false, "")
	check := flags.Bool("check-policy", false, "")
	asJSON := flags.Bool("json", false, "")
	switch done, err := cmdline.Parse(flags, args, usage, stdout); {
	case err != nil || done:
		return nil, done, err
	case *list:
		return nil, true, listFunctions(stdout, *asJSON)
	case *asJSON && !*check:
		return nil, false, errors.New("--json goes with --list-functions and --check-policy")
	}

	if f := o.logFormat; f != "" && f != "text" && f != "json" {
		return nil, false, fmt.Errorf("--log-format is %q; it is text or json", f)
	}
	if err := o.checkEngine(); err != nil {
		return nil, false, err
	}
	if err := o.complete(); err != nil || !*check {
		return o, false, err
	}

	return o, true, checkPolicy(o, stdout, *asJSON)
}

// complete fills in the defaults.
func (o *options) complete() error {
	if !o.dev {
		if o.policyPath == "" {
			o.policyPath = "/etc/capgpu/policy.json"
		}
		if o.runDir == "" {
			o.runDir = "/run/capgpu"
		}
	}

	if o.runDir == "" {
		o.runDir = devRunDir(os.Getenv("XDG_RUNTIME_DIR"))
	}

	if o.state == "" {
		o.state = "/var/lib/capgpu"
		if o.dev {
			o.state = o.runDir
		}
	}

	own, err := os.Executable()
	if err != nil && (o.driver == "" || o.service == "" || o.gate == "" || o.launcher == "") {
		return fmt.Errorf("find the other programs: %w; name them with --driver, --service, --gate and --engine-launcher", err)
	}

	for _, p := range []struct {
		path *string
		name string
	}{{&o.driver, "gpu-mock"}, {&o.service, "gpu-service"}, {&o.gate, "gpu-gate"}, {&o.launcher, "gpu-engine-launch"}} {
		if *p.path == "" {
			*p.path = filepath.Join(filepath.Dir(own), p.name)
		}
	}

	for _, path := range []*string{&o.runDir, &o.state, &o.driver, &o.service, &o.gate, &o.launcher} { // children run in /
		if *path, err = filepath.Abs(*path); err != nil {
			return fmt.Errorf("find the current directory: %w", err)
		}
	}

	return nil
}

// devRunDir is the directory in which gpuctl looks, if the user has a runtime
// directory.
func devRunDir(xdg string) string {
	if xdg != "" {
		return filepath.Join(xdg, "capgpu")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("capgpu-%d", os.Getuid()))
}

// good is a policy file that this host can serve, with the fault script that it
// names.
func (o *options) good() (p *manager.Policy, script string, err error) {
	if p, err = o.policy(); err != nil {
		return nil, "", err
	}
	if script, err = readFaults(p.Device.Faults); err != nil {
		return nil, "", err
	}
	if err := p.CheckHost(); err != nil {
		return nil, "", fmt.Errorf("policy %s: %w", o.policyPath, err)
	}
	return p, script, nil
}

// policy reads the policy file, or returns the built-in one.
func (o *options) policy() (*manager.Policy, error) {
	if o.policyPath == "" {
		return o.devPolicy()
	}
	data, err := os.ReadFile(o.policyPath)
	if err != nil {
		return nil, fmt.Errorf("read the policy: %w; start from packaging/policy.json, or use --dev", err)
	}
	return o.parse(data)
}

// parse parses the text of the policy file.
func (o *options) parse(data []byte) (*manager.Policy, error) {
	p, err := manager.ParsePolicy(data)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", o.policyPath, err)
	}
	if p.Device.Faults != "" && !o.dev {
		return nil, fmt.Errorf("policy %s: device.faults is for developer mode; remove it, or use --dev", o.policyPath)
	}
	if f := &p.Device.Faults; *f != "" && !filepath.IsAbs(*f) { // relative to the policy; the driver runs in /
		dir, err := filepath.Abs(filepath.Dir(o.policyPath))
		if err != nil {
			return nil, fmt.Errorf("find the current directory: %w", err)
		}
		*f = filepath.Join(dir, *f)
	}
	return p, nil
}

// auditPath makes the folder of the audit log if it is missing.
func (o *options) auditPath(p *manager.Policy) (string, error) {
	path := o.audit
	if path == "" {
		path = p.Audit.Path
	}
	if path == "" {
		path = filepath.Join(o.runDir, "audit.log")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("make the folder of the audit log: %w", err)
	}
	return path, nil
}

// logHandler is the log for machines.
func (o *options) logHandler(w io.Writer) slog.Handler {
	level := &slog.HandlerOptions{Level: slog.LevelInfo}
	if o.dev && o.logFormat == "" { // a warning is printed in plain words
		level.Level = slog.LevelError
	}
	if o.logFormat == "json" {
		return slog.NewJSONHandler(w, level)
	}
	return slog.NewTextHandler(w, level)
}
