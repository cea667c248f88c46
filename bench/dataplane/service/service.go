// Package service runs the built commands, as an operator would: device-manager
// with a policy file, and the gpu-mock that it spawns, in processes of their own
// with every check, ledger and audit counter on. It also reads the kernel's data
// about them.
package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/client"
)

// Tenant is the one tenant of the default policy.
const Tenant = "bench"

// policyDevice and policyTenant are generous: the figures are about the cost of
// limits, not about reaching them.
const (
	policyDevice = `{
  "device": {"memory": %d, "iovaEntries": 16384, "hugePages": %t, "faults": %q, "respawn": {"budget": 1000, "firstDelay": "1ms", "maxDelay": "10ms"}},%s
  "tenants": [`
	policyTenant = `{
    "name": %q, "allowedUids": "any", "facet": "full", "maxConnections": %d, %s
    "limits": {%s}
  }`
	generous = `
      "deviceMemory": "8GiB", "hostMemory": "8GiB", "sessions": 8192, "buffers": 4000000, "fences": 100000,
      "programs": 100000, "queueSlots": 8000000, "inFlight": 4000000, "descriptors": 1000000`
	// bounded are the limits of a tenant besides the first one: high enough that
	// reaching them takes some work, and low enough that all tenants have room.
	bounded = `
      "deviceMemory": "256MiB", "hostMemory": "256MiB", "sessions": 64, "buffers": 1024, "fences": 1024,
      "programs": 256, "queueSlots": 8192, "inFlight": 4096`
)

// policy is the file for a device-manager with these options. The fault script is
// beside it.
func (o Options) policy() []byte {
	script := ""
	if o.Faults != "" {
		script = faultsFile
	}

	logs := ""
	if o.AuditBytes > 0 {
		logs = fmt.Sprintf("\n  \"audit\": {\"maxBytes\": %d, \"keep\": 2, \"owners\": {\"maxBytes\": %d, \"keep\": 2}},", o.AuditBytes, o.AuditBytes)
	}

	text := fmt.Appendf(nil, policyDevice, deviceMemory(), o.HugePages, script, logs)
	text = fmt.Appendf(text, policyTenant, Tenant, 256, "", generous)
	for _, name := range o.Neighbours {
		text = append(text, ", "...)
		times := ""
		if o.NeighboursDeadline > 0 {
			times = fmt.Sprintf(`"maxDeadline": %q,`, o.NeighboursDeadline)
		}
		if o.NeighboursIdle > 0 {
			times += fmt.Sprintf(`"idleTimeout": %q,`, o.NeighboursIdle)
		}
		text = fmt.Appendf(text, policyTenant, name, 8, times, bounded)
	}

	return append(text, "]\n}\n"...)
}

// deviceMemory is 8 GiB, or three quarters of the host's memory if that is less: a
// policy that gives a function more than the host has would be refused.
func deviceMemory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 1 << 30 // a policy's default
	}
	return min(8<<30, uint64(info.Totalram)*uint64(info.Unit)/4*3)
}

const faultsFile = "faults.json"

// Service is a device-manager with its driver.
type Service struct {
	Socket  string // of the tenant
	dir     string
	options Options
	manager *exec.Cmd
	ended   chan struct{}
	log     *logBuffer
}

// logBuffer keeps the end of a command's output, and which driver was ready last.
type logBuffer struct {
	mu      sync.Mutex
	buf     bytes.Buffer // guarded by mu
	driver  int          // guarded by mu; 0: none was
	reloads int          // guarded by mu; of the policy
}

// readyLine is device-manager's report that a driver is ready, or has taken over.
var readyLine = regexp.MustCompile(`capgpu: device .* \(epoch [0-9]+,.* driver pid ([0-9]+)\)`)

const maxLogBytes = 64 << 10

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if all := readyLine.FindAllSubmatch(p, -1); len(all) > 0 {
		l.driver, _ = strconv.Atoi(string(all[len(all)-1][1])) // these are digits
	}
	l.reloads += bytes.Count(p, []byte("capgpu: policy reloaded\n"))
	if l.buf.Len() > maxLogBytes {
		l.buf.Reset()
	}
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// startTimeout bounds the time until the manager is there and its driver is ready.
const startTimeout = 20 * time.Second

// Options are the differences between services.
type Options struct {
	HugePages          bool          // device memory may be of the host's huge pages
	Neighbours         []string      // more tenants
	NeighboursDeadline time.Duration // of their work, in the policy; 0: the device's
	NeighboursIdle     time.Duration // after which their connections end, in the policy; 0: its default
	AuditBytes         int           // of a file of an audit log, of which three are kept; 0: the policy's default
	Faults             string        // the device's faults: a script of package faults
}

// Start starts the commands in the folder bin on one CPU, and returns when the
// device is ready. They are on that CPU from their first instruction, so that the
// Go runtime sees one CPU; a driver that is replaced is there as well.
func Start(bin string, cpu int, o Options) (_ *Service, err error) {
	if _, err := os.Stat(filepath.Join(bin, "device-manager")); err != nil {
		return nil, fmt.Errorf("the commands are not built (make build): %w", err)
	}

	dir, err := os.MkdirTemp("", "capgpu-bench-")
	if err != nil {
		return nil, err
	}

	s := &Service{dir: dir, options: o, Socket: filepath.Join(dir, "run", Tenant+".sock"), ended: make(chan struct{}), log: &logBuffer{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()

	file := filepath.Join(dir, "policy.json")
	if err := os.WriteFile(file, o.policy(), 0o600); err != nil {
		return nil, err
	}

	if o.Faults != "" {
		if err := os.WriteFile(filepath.Join(dir, faultsFile), []byte(o.Faults), 0o600); err != nil {
			return nil, err
		}
	}

	s.manager = exec.Command(filepath.Join(bin, "device-manager"), "--dev", "--policy", file, "--run-dir", filepath.Join(dir, "run"), "--audit", s.AuditPath())
	s.manager.Stderr, s.manager.Stdout = s.log, s.log
	s.manager.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGTERM}
	if err := OnCPU(cpu, s.manager.Start); err != nil {
		s.manager = nil
		return nil, err
	}

	go func() {
		defer close(s.ended)
		_ = s.manager.Wait() // what it said is in the log
	}()

	return s, s.AwaitReady(startTimeout)
}

// AwaitReady waits until the device can be opened.
func (s *Service) AwaitReady(longest time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	var last error
	for ctx.Err() == nil {
		select {
		case <-s.ended:
			return fmt.Errorf("device-manager has ended:\n%s", s.log)
		default:
		}
		if last = s.tryOpen(ctx); last == nil {
			return nil
		}
		time.Sleep(2 * time.Millisecond)
	}
	return fmt.Errorf("the device does not get ready: %w; device-manager said:\n%s", last, s.log)
}

func (s *Service) tryOpen(ctx context.Context) error {
	conn, err := client.Dial(ctx, s.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	session, err := conn.Open(ctx, 0)
	if err != nil {
		return err
	}
	return session.Close(ctx)
}

// AuditPath is the audit log of the host.
func (s *Service) AuditPath() string { return filepath.Join(s.dir, "audit.log") }

// SocketOf is the socket of one of the tenants.
func (s *Service) SocketOf(tenant string) string { return filepath.Join(s.dir, "run", tenant+".sock") }

// GateSocketOf is a tenant's socket for Cap'n Proto.
func (s *Service) GateSocketOf(tenant string) string {
	return filepath.Join(s.dir, "run", tenant+".capnp.sock")
}

// AdminSocket is the operator's.
func (s *Service) AdminSocket() string { return filepath.Join(s.dir, "run", "manager.admin.sock") }

// Log is the output of the manager, and through it of the driver.
func (s *Service) Log() string { return s.log.String() }

// ManagerPID is the manager's process.
func (s *Service) ManagerPID() int { return s.manager.Process.Pid }

// DriverPID is the process of the driver that was the last to be ready or to take
// over. Another process of the same program may stand by.
func (s *Service) DriverPID() (int, error) {
	s.log.mu.Lock()
	pid := s.log.driver
	s.log.mu.Unlock()
	if pid == 0 {
		return 0, fmt.Errorf("no driver has been ready; device-manager said:\n%s", s.log)
	}
	return pid, nil
}

// OnCPU calls f on a thread with one CPU; processes that f starts have it too.
func OnCPU(cpu int, f func() error) error {
	var one unix.CPUSet
	one.Set(cpu)
	return onCPUs(fmt.Sprintf("CPU %d", cpu), &one, f)
}

// OnAllCPUs calls f on a thread with all CPUs, whatever those of this process are.
func OnAllCPUs(f func() error) error {
	var all unix.CPUSet
	for i := range runtime.NumCPU() {
		all.Set(i)
	}
	return onCPUs("all CPUs", &all, f)
}

// onCPUs gives the thread back with its old CPUs. It must not end the thread,
// because peers end with the thread that started them.
func onCPUs(which string, set *unix.CPUSet, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	if err := unix.SchedSetaffinity(0, set); err != nil {
		return fmt.Errorf("use %s: %w", which, err)
	}
	return errors.Join(f(), unix.SchedSetaffinity(0, &before))
}

// Status is the driver's status of the first tenant, as JSON.
func (s *Service) Status(ctx context.Context) (json.RawMessage, error) {
	return s.StatusOf(ctx, Tenant)
}

// StatusOf is the driver's status of one tenant, as that tenant sees it.
func (s *Service) StatusOf(ctx context.Context, tenant string) (json.RawMessage, error) {
	conn, err := client.Dial(ctx, s.SocketOf(tenant))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.Status(ctx, 0)
}

// AwaitReclaimed returns when nothing is left of the closed sessions: Close answers
// when nothing of them can be used any more, and their memory is freed afterwards.
func (s *Service) AwaitReclaimed(ctx context.Context, longest time.Duration) error {
	return AwaitReclaimed(ctx, s.Socket, longest)
}

// AwaitReclaimed is the same for the tenant with that socket.
func AwaitReclaimed(ctx context.Context, socket string, longest time.Duration) error {
	conn, err := client.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer conn.Close()

	for end := time.Now().Add(longest); ; time.Sleep(2 * time.Millisecond) {
		text, err := conn.Status(ctx, 0)
		if err != nil {
			return err
		}

		var status struct {
			Tenants []struct{ Sessions []struct{ Closing bool } }
		}

		if err := json.Unmarshal(text, &status); err != nil {
			return err
		}

		closing := 0
		for _, t := range status.Tenants {
			for _, one := range t.Sessions {
				if one.Closing {
					closing++
				}
			}
		}

		if closing == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d sessions are closing still after %v", closing, longest)
		}
	}
}

const stopTimeout = 10 * time.Second

// Close stops the manager in order, and removes its files.
func (s *Service) Close() error {
	if s.manager != nil {
		_ = s.manager.Process.Signal(unix.SIGTERM) // it may have ended
		select {
		case <-s.ended:
		case <-time.After(stopTimeout):
			_ = s.manager.Process.Kill()
			<-s.ended
		}
	}
	return os.RemoveAll(s.dir)
}
