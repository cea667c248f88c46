// Command device-manager owns the GPUs of a host and introduces clients to the
// drivers it starts. See --help and docs/architecture.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"capgpu/audit"
	"capgpu/gpu/backend/mock/faults"
	"capgpu/gpuerr"
	"capgpu/internal/cmdline"
	"capgpu/internal/shm"
	"capgpu/internal/yield"
	"capgpu/manager"
)

func main() {
	// The main goroutine only waits for signals. Locking it keeps the first thread
	// of the process from running background work, which that thread cannot do
	// (package manager, reclaim.go).
	runtime.LockOSThread()
	os.Exit(runCommand(os.Args[1:], os.Stdout, os.Stderr))
}

func runCommand(args []string, stdout, stderr io.Writer) int {
	o, done, err := parseOptions(args, stdout)
	switch {
	case err != nil && done:
		fmt.Fprintln(stderr, "device-manager:", err)
		return 1
	case err != nil:
		cmdline.Wrong(stderr, "device-manager", err)
		return 2
	case done:
		return 0
	}

	// Install the handlers before anything starts, so that no signal finds the
	// default action.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer signal.Stop(signals)

	if err := serve(o, stderr, signals); err != nil {
		fmt.Fprintln(stderr, "device-manager:", err)
		return 1
	}

	return 0
}

// stopTimeout bounds an orderly stop; after it the driver is killed. Close then
// ends 7 s later at most: within TimeoutStopSec of the units in packaging, of which
// the shortest is 15 s.
const stopTimeout = 7 * time.Second

// serve runs until a signal asks it to stop.
func serve(o *options, stderr io.Writer, signals <-chan os.Signal) error {
	paced := manager.NewPacedLog(o.logHandler(stderr))
	defer paced.Close()
	log := slog.New(paced)
	slog.SetDefault(log) // for packages without a logger of their own
	policy, script, err := o.good()
	if err != nil {
		return err
	}

	if err := manager.MakeRunDir(o.runDir); errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; run it as root, give it another --run-dir, or use --dev", err)
	} else if err != nil { // the audit log may be in it
		return err
	}

	auditPath, err := o.auditPath(policy)
	if err != nil {
		return err
	}

	host, owners := policy.Audit.Host.Options(), policy.Audit.Owners.Options()
	host.GroupFsync, owners.GroupFsync = auditFsync, auditFsync
	records, err := audit.OpenSet(auditPath, host, owners)
	if errors.Is(err, gpuerr.Busy) { // before the lock of the run directory, which would report the same
		return fmt.Errorf("another device-manager writes the audit log %s; stop it first, or give this one another --run-dir and --audit", auditPath)
	}
	if err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}

	say := func(line string) { fmt.Fprintln(stderr, line) }
	yield.ToOthers(yield.Sparingly(shm.Yield)) // a driver may be on the same processor
	m, err := manager.Start(manager.Config{
		Policy: policy, RunDir: o.runDir, Audit: records,
		DriverPath: o.driver, DriverArgs: driverArgs(&policy.Device, script), ServicePath: o.service, GatePath: o.gate,
		LauncherPath: o.launcher, EngineDir: filepath.Dir(o.launcher),
		Hardware: o.hardware(policy, log), Parse: o.parse, Log: log, Say: say,
	})
	if err != nil {
		return err
	}

	printWelcome(o, m, policy, say)
	notify(log, daemon.SdNotifyReady)
	log.Info("serving", "runDir", o.runDir, "tenants", len(policy.Tenants), "audit", auditPath)

	attendSignals(signals, func(ctx context.Context) { reload(ctx, o, m, log, say) })
	notify(log, daemon.SdNotifyStopping)
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()

	return m.Close(ctx)
}

// attendSignals returns when a signal asks to stop. Each SIGHUP runs hup, one after
// the other. A running one is cancelled at the stop, and over when attendSignals
// returns.
func attendSignals(signals <-chan os.Signal, hup func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	hups := make(chan struct{}, 1) // a waiting one stands for all that come until it begins
	var running sync.WaitGroup
	running.Go(func() {
		for range hups {
			if ctx.Err() == nil {
				hup(ctx)
			}
		}
	})

	defer running.Wait()
	defer cancel()
	defer close(hups)
	for s := range signals {
		if s != syscall.SIGHUP {
			return
		}
		select {
		case hups <- struct{}{}:
		default:
		}
	}
}

// hardware is this host's hardware. A developer's manager uses it only on request;
// any other manager uses it also to give back devices that an earlier one has left.
func (o *options) hardware(p *manager.Policy, log *slog.Logger) manager.Hardware {
	if o.dev && !p.Hardware() {
		return nil
	}
	return manager.NewHardware(o.state, log)
}

// driverArgs is the command line of the driver: the policy's options for the mock.
// It contains the fault script itself, because a driver can open no file.
func driverArgs(d *manager.DevicePolicy, script string) (args []string) {
	if script != "" {
		args = append(args, "--faults", script)
	}
	if d.Engine != "" {
		args = append(args, "--engine", d.Engine)
	}
	if d.Subgroup != 0 {
		args = append(args, "--subgroup", strconv.FormatUint(d.Subgroup, 10))
	}
	if d.Discrete {
		args = append(args, "--discrete")
	}
	return args
}

// auditFsync bounds the part of the log that a power cut may cost.
const auditFsync = 100 * time.Millisecond

// maxFaultsBytes fits safely into an argument (128 KiB, MAX_ARG_STRLEN).
const maxFaultsBytes = 64 << 10

// readFaults returns a fault script. It refuses a script that would kill every mock
// driver.
func readFaults(path string) (script string, err error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the fault script that device.faults of the policy names: %w", err)
	}
	if len(text) > maxFaultsBytes {
		return "", fmt.Errorf("fault script %s: it has %d bytes; it may have %d", path, len(text), maxFaultsBytes)
	}
	if _, err := faults.ParseScript(text); err != nil {
		return "", fmt.Errorf("fault script %s: %w", path, err)
	}
	return string(text), nil
}

func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("tell systemd", "state", state, "err", err)
	}
}

// printWelcome suggests what to try next.
func printWelcome(o *options, m *manager.Manager, p *manager.Policy, say func(string)) {
	say("capgpu: tenant sockets in " + o.runDir)
	if !o.dev {
		return
	}

	gpuctl := "gpuctl"
	if path := filepath.Join(filepath.Dir(o.driver), "gpuctl"); exists(path) {
		gpuctl = path
	}

	first := p.Tenants[0].Name
	what := "the fake function, "
	if len(p.Functions) > 0 || p.ClaimAll {
		what = ""
	}

	say("capgpu: developer mode: " + what + "for this user only. Try, in another terminal:")
	say("")
	say("    " + gpuctl + " --socket " + m.SocketPath(first) + " devices")
	say("")
	for _, t := range p.Tenants {
		say(fmt.Sprintf("    tenant %-12s %s", t.Name, m.SocketPath(t.Name)))
		say(fmt.Sprintf("    %-19s %s (Cap'n Proto)", "", m.CapnpSocketPath(t.Name)))
	}

	say("")
	say("capgpu: Ctrl-C stops everything")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}
