package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/audit"
	"capgpu/client"
	"capgpu/conformance"
)

// Transport is the clients' protocol.
type Transport int

const (
	GoClient Transport = iota
	Capnp
)

// String is for the table.
func (t Transport) String() string { return [...]string{"Go client", "Cap'n Proto"}[t] }

// Options of a Stack.
type Options struct {
	Transport Transport
	// Bin has the programs: device-manager, gpu-gate, gpuctl, and gpu-mock or gpu-service
	// and hostile-driver.
	Bin      string
	Discrete bool // the mock has memory of its own
	// Functions are the addresses of two edu functions; none: the mock.
	Functions []string
}

// Stack is the service in processes.
type Stack struct {
	o       Options
	device  device
	dir     string
	manager *exec.Cmd
	exited  chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	said bytes.Buffer // output of the manager and its children
	// +checklocks:mu
	ready map[string]process // of each device, the last driver that was ready
	// +checklocks:mu
	limits map[string]map[string]uint64 // the limits that SetLimit has set, by tenant and class
}

// process is a driver that the manager has reported ready.
type process struct {
	epoch uint64
	pid   int
}

// device is the difference between the mock and edu.
type device interface {
	name() string
	names() []string // of the devices, by index
	policy(s *Stack) map[string]any
	can() conformance.Abilities
	cannot(k conformance.Kind) string
	work(ctx context.Context, s conformance.Session, k conformance.Kind, deadline time.Duration) (conformance.Work, error)
}

const (
	startTime = 30 * time.Second
	stopTime  = 20 * time.Second
)

// Start starts the service and returns when its devices are ready.
func Start(o Options) (_ *Stack, err error) {
	s := &Stack{o: o, device: mock{o.Discrete}, exited: make(chan struct{}), ready: map[string]process{}, limits: map[string]map[string]uint64{}}
	if len(o.Functions) > 0 {
		s.device = edu{o.Functions}
	}
	if s.dir, err = os.MkdirTemp("", "capgpu-conformance-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, s)
			s.Close()
		}
	}()

	if err := os.WriteFile(s.path("faults.json"), []byte(faultScript), 0o600); err != nil {
		return nil, err
	}
	if err := s.writePolicy(); err != nil {
		return nil, err
	}

	args := []string{"--policy", s.path("policy.json"), "--run-dir", s.path("run"), "--state", s.path("run"), "--audit", s.path("audit.log")}
	if len(o.Functions) == 0 {
		if err := errors.Join(s.install("gpu-mock"), os.Chmod(s.dir, 0o755)); err != nil { // the driver runs as another user
			return nil, err
		}
		args = append([]string{"--dev", "--driver", s.driver()}, args...)
	}

	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}

	manager := exec.Command(filepath.Join(o.Bin, "device-manager"), args...)
	manager.Stdout, manager.Stderr = w, w
	manager.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGTERM}
	err = manager.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}

	s.manager = manager
	go s.runRead(r)
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()

	for i := range s.device.names() {
		if _, err := s.Driver(ctx, uint32(i)); err != nil {
			return nil, err
		}
	}

	return s, nil
}

func (s *Stack) path(name string) string { return filepath.Join(s.dir, name) }

// runRead keeps the manager's output, and finds the drivers that are ready.
func (s *Stack) runRead(r io.ReadCloser) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var name string
		var p process
		var generation uint64
		n, _ := fmt.Sscanf(lines.Text(), "capgpu: device %s ready (epoch %d, driver pid %d)", &name, &p.epoch, &p.pid)
		if n != 3 {
			n, _ = fmt.Sscanf(lines.Text(), "capgpu: device %s has another driver (epoch %d, generation %d, driver pid %d)", &name, &p.epoch, &generation, &p.pid)
		}
		s.mu.Lock()
		fmt.Fprintln(&s.said, lines.Text())
		if n >= 3 && p.pid != 0 {
			s.ready[name] = p
		}
		s.mu.Unlock()
	}

	r.Close()
	_ = s.manager.Wait() // its sockets, or Close, show how it ended
	close(s.exited)
}

// Close stops the service. It must leave nothing behind.
func (s *Stack) Close() error {
	var err error
	if s.manager != nil {
		err = s.manager.Process.Signal(unix.SIGTERM)
		select {
		case <-s.exited:
		case <-time.After(stopTime):
			_ = s.manager.Process.Kill()
			err = fmt.Errorf("device-manager did not stop within %v", stopTime)
		}
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// String is the end of the processes' output.
func (s *Stack) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	const most = 8 << 10
	text := s.said.Bytes()
	return "device-manager said:\n" + string(text[max(0, len(text)-most):])
}

// Name implements conformance.Stack.
func (s *Stack) Name() string { return s.device.name() + ", " + s.o.Transport.String() }

// Can implements conformance.Stack.
func (s *Stack) Can() conformance.Abilities { return s.device.can() }

// Cannot implements conformance.Stack.
func (s *Stack) Cannot(k conformance.Kind) string { return s.device.cannot(k) }

// Work implements conformance.Stack.
func (s *Stack) Work(ctx context.Context, session conformance.Session, k conformance.Kind, deadline time.Duration) (conformance.Work, error) {
	if why := s.Cannot(k); why != "" {
		return conformance.Work{}, fmt.Errorf("%v work cannot be: %s", k, why)
	}
	return s.device.work(ctx, session, k, deadline)
}

func (s *Stack) socket(tenant string) string { return s.path("run/" + tenant + ".sock") }

func (s *Stack) capnpSocket(tenant string) string { return s.path("run/" + tenant + ".capnp.sock") }

// Dial implements conformance.Stack.
func (s *Stack) Dial(ctx context.Context, tenant string) (conformance.Conn, error) {
	if s.o.Transport == Capnp {
		return conformance.DialCapnp(ctx, s.capnpSocket(tenant))
	}
	return conformance.DialGo(ctx, s.socket(tenant))
}

// Raw implements conformance.Stack.
func (s *Stack) Raw(ctx context.Context, tenant string, text []byte) error {
	if s.o.Transport == Capnp {
		return conformance.RawCapnp(ctx, s.capnpSocket(tenant), text)
	}
	return conformance.RawGo(ctx, s.socket(tenant), text)
}

// Flood implements conformance.Stack.
func (s *Stack) Flood(ctx context.Context, tenant string, n int, paused func()) (answered, refused int, err error) {
	if s.o.Transport == Capnp {
		return conformance.FloodCapnp(ctx, s.capnpSocket(tenant), n, paused)
	}
	return conformance.FloodGo(ctx, s.socket(tenant), n, paused)
}

// Audit implements conformance.Stack.
func (s *Stack) Audit(kind string) ([]conformance.Record, error) {
	records, err := audit.ReadAll(s.path("audit.log"))
	if err != nil {
		return nil, err
	}
	var some []conformance.Record
	for _, r := range records {
		if r.Kind == kind {
			some = append(some, conformance.Record{Kind: r.Kind, Tenant: r.Tenant, Detail: r.Detail})
		}
	}
	return some, nil
}

// status is the used part of a driver's status.
type status struct {
	Resets  uint64 `json:"resets"`
	Tenants []struct {
		Tenant string            `json:"tenant"`
		Budget []conformance.Use `json:"budget"`
	} `json:"tenants"`
}

func (s *Stack) status(ctx context.Context, tenant string, device uint32) (st status, err error) {
	conn, err := client.Dial(ctx, s.socket(tenant))
	if err != nil {
		return st, err
	}
	defer conn.Close()
	text, err := conn.Status(ctx, device)
	if err != nil {
		return st, err
	}
	return st, json.Unmarshal(text, &st)
}

// Charges implements conformance.Stack.
func (s *Stack) Charges(ctx context.Context, tenant string, device uint32) ([]conformance.Use, error) {
	st, err := s.status(ctx, tenant, device)
	var held []conformance.Use
	for _, t := range st.Tenants {
		for _, u := range t.Budget {
			// deviceTime and auditBytes are spent, not held.
			if t.Tenant == tenant && u.Class != "deviceTime" && u.Class != "auditBytes" {
				held = append(held, u)
			}
		}
	}
	return held, err
}

// Resets implements conformance.Stack.
func (s *Stack) Resets(ctx context.Context, device uint32) (uint64, error) {
	st, err := s.status(ctx, conformance.Carol, device)
	return st.Resets, err
}
