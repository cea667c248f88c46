package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"capgpu/gpuerr"
	"capgpu/internal/cmdline"
	"capgpu/internal/crashpoint"
	"capgpu/internal/sandbox"
	"capgpu/internal/sanitize"
	"capgpu/ledger"
)

// Config configures a Manager. A duration of zero means the default.
type Config struct {
	Policy *Policy
	RunDir string   // made with mode 0700 if missing
	Audit  AuditLog // owned by the Manager from Start on, also when Start fails

	DriverPath  string   // gpu-mock, which drives the fake function
	DriverArgs  []string // of DriverPath
	ServicePath string   // gpu-service, which drives hardware unless the policy names another
	GatePath    string   // gpu-gate
	// LauncherPath is gpu-engine-launch; EngineDir is the folder of the engine programs
	// gpu-engine-KIND that the policy does not name. Needed if it has functions with nodes.
	LauncherPath, EngineDir string

	Hardware Hardware // opens functions; needed if the policy has any

	// Parse parses a policy that an operator asks about; nil: ParsePolicy.
	Parse func(text []byte) (*Policy, error)

	Log *slog.Logger      // for machines; nil: discarded
	Say func(line string) // lines for a person; nil: discarded

	ReadyTimeout time.Duration // from a driver's start to its Ready
	PingInterval time.Duration
	PingTimeout  time.Duration // a driver silent for so long is killed
	ReapTimeout  time.Duration // a killed driver not gone by then wedges the device
	// StopTimeout is how long a driver may take to stop all work for an upgrade or a
	// suspension. After that it continues instead.
	StopTimeout time.Duration
}

// Defaults of a Config.
const (
	DefaultReadyTimeout = 15 * time.Second
	DefaultPingInterval = time.Second
	DefaultPingTimeout  = 4 * time.Second
	DefaultReapTimeout  = 10 * time.Second // the context of a real GPU takes long to be released
	DefaultStopTimeout  = 5 * time.Second
)

func (c *Config) setDefaults() error {
	if c.Policy == nil || c.Audit == nil || c.RunDir == "" {
		return errors.New("Config needs a Policy, a RunDir and an Audit log")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Say == nil {
		c.Say = func(string) {}
	}
	if c.Parse == nil {
		c.Parse = ParsePolicy
	}

	c.setTimes()
	if c.Policy.Hardware() && c.Hardware == nil {
		return errors.New("the policy names functions of hardware, and Config has no Hardware to open them with")
	}

	for _, p := range c.programs() {
		info, err := os.Stat(p.path)
		if err != nil {
			return fmt.Errorf("find the %s: %w; name it with %s", p.what, err, p.flag)
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return fmt.Errorf("the %s %s is no program; name it with %s", p.what, p.path, p.flag)
		}
	}

	return nil
}

func (c *Config) setTimes() {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.ReadyTimeout, DefaultReadyTimeout}, {&c.PingInterval, DefaultPingInterval}, {&c.PingTimeout, DefaultPingTimeout}, {&c.ReapTimeout, DefaultReapTimeout}, {&c.StopTimeout, DefaultStopTimeout}} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
}

type program struct{ what, path, flag string }

// programs returns the programs that will be started.
func (c *Config) programs() []program {
	all := []program{{"gate", c.GatePath, "--gate"}}
	if c.Policy.fake() {
		return append(all, program{"driver", c.DriverPath, "--driver"})
	}
	for _, f := range c.Policy.Functions {
		if f.Node == nil {
			continue
		}
		all = append(all,
			program{"launcher of engines", c.LauncherPath, "--engine-launcher"},
			program{"engine of " + f.Name, c.engine(f.Node), "functions[].engine of the policy"})
	}
	for _, f := range c.Policy.Functions {
		if f.Driver != "" {
			all = append(all, program{"driver of " + f.Name, f.Driver, "functions[].driver of the policy"})
		}
	}
	if c.Policy.ClaimAll || slices.ContainsFunc(c.Policy.Functions, func(f FunctionPolicy) bool { return f.Driver == "" }) {
		all = append(all, program{"driver", c.ServicePath, "--service"})
	}
	return all
}

// engine returns the engine program of a function.
func (c *Config) engine(n *NodePolicy) string {
	if n.Engine != "" {
		return n.Engine
	}
	return filepath.Join(c.EngineDir, "gpu-engine-"+n.Kind)
}

// Manager is a running device-manager.
type Manager struct {
	cfg     Config
	log     *slog.Logger
	audit   AuditLog // of the host
	iommu   AuditLog // of the IOMMU's events, for all functions
	ledger  *ledger.Ledger
	dir     *runDir
	jailer  *sandbox.Jailer
	spawner *spawner // of drivers
	gates   *gatePool
	devices []*device // by index; set before clients are served
	admin   *adminServer

	reconcile *reconciler // of DMA memory

	faults struct {
		watch   *faultWatch  // nil: no faults are reported
		unclear *rateLimiter // of records of faults that may be of several functions
	}

	served servedTenants

	reload struct {
		turn   turnstile       // held by one Reload, Plan or Close
		ctx    context.Context // ended by Close: a waiting Reload ends
		cancel context.CancelFunc
	}

	closeOnce sync.Once
	closeErr  error
}

// servedTenants are the tenants of a Manager.
type servedTenants struct {
	mu sync.Mutex
	// +checklocks:mu
	tenants []*tenantServer // in the policy's order
	// +checklocks:mu
	leaving []*tenantServer // removed by the policy, and not ended yet
}

// Start takes the run directory, opens the sockets and starts the driver. It returns once
// clients can connect; the device may still be starting.
func Start(cfg Config) (_ *Manager, err error) {
	var undo []func() error
	defer func() {
		for i := len(undo) - 1; err != nil && i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
	}()

	if cfg.Audit != nil {
		undo = append(undo, cfg.Audit.Close)
	}
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}

	m := &Manager{cfg: cfg, log: cfg.Log, audit: cfg.Audit, ledger: ledger.New("manager", ledger.NoLimits())}
	m.faults.unclear = newRateLimiter(faultBurst, faultInterval, time.Now())
	m.reload.turn = newTurnstile(1)
	m.reload.ctx, m.reload.cancel = context.WithCancel(context.Background())
	if m.dir, err = openRunDir(cfg.RunDir); err != nil {
		return nil, err
	}

	undo = append(undo, m.dir.Close)
	if _, err := m.audit.Append("manager.start", "", fmt.Sprintf("pid=%d version=%s tenants=%d", os.Getpid(), cmdline.Revision(), len(cfg.Policy.Tenants))); err != nil {
		return nil, fmt.Errorf("write the audit log: %w", err)
	}
	if err := m.recordCrash(); err != nil {
		return nil, err
	}

	crashpoint.Here("manager.start.recorded")
	if m.jailer, err = sandbox.New(cfg.Policy.Sandbox.options(m.log)); err != nil {
		return nil, err
	}

	undo = append(undo, m.jailer.Close)
	m.spawner = newSpawner(m.jailer)
	undo = append(undo, func() error { m.spawner.Close(); return nil })
	m.gates = newGatePool(m)
	undo = append(undo, func() error { return m.gates.Close(newGrace(closeGrace)) })
	if err := m.startReconciler(); err != nil {
		return nil, err
	}
	if cfg.Hardware != nil {
		undo = append(undo, cfg.Hardware.Close)
	}

	undo = append(undo, m.reconcile.Close, m.releaseDevices)
	if err := m.openDevices(); err != nil {
		return nil, err
	}

	crashpoint.Here("manager.start.devices")
	for i := range cfg.Policy.Tenants {
		t, err := m.newTenantServer(&cfg.Policy.Tenants[i])
		if err != nil {
			return nil, fmt.Errorf("open the sockets of tenant %q: %w", cfg.Policy.Tenants[i].Name, err)
		}
		undo = append(undo, func() error { return t.Close(newGrace(closeGrace)) })
		m.setServers(append(m.servers(), t))
	}

	if cfg.Policy.Hardware() {
		m.watchFaults()
	}

	crashpoint.Here("manager.start.sockets")
	for _, d := range m.devices {
		d.faults.watch = m.faults.watch
		d.start()
	}

	for _, t := range m.servers() {
		t.start()
	}

	if m.admin, err = m.startAdmin(); err != nil {
		m.log.Error("no operator's socket: drivers cannot be replaced while they have sessions", "err", err)
		err = nil
	}

	return m, nil
}

// say prints a line for a person.
func (m *Manager) say(format string, args ...any) {
	m.cfg.Say("capgpu: " + sanitize.Text(fmt.Sprintf(format, args...))) // a cause may contain untrusted text
}

// Close refuses new clients, lets the drivers shut down within ctx, and returns when nothing
// of the manager is left. The kernel can hold a process or a call for any time; what cannot
// be ended is left behind and named in the error, at most goodbyeGrace + stopPatience +
// endGrace + releaseGrace + closeGrace after ctx. Log and run directory are free for the next
// manager in any case. Close is idempotent.
func (m *Manager) Close(ctx context.Context) error {
	m.closeOnce.Do(func() { m.closeErr = m.close(ctx) })
	return m.closeErr
}

func (m *Manager) close(ctx context.Context) error {
	m.say("stopping")
	m.reload.cancel()
	_ = m.reload.turn.enter(context.Background()) // a running reload has ended by then
	tenants := m.servers()
	crashpoint.Here("manager.stop.begun")
	var errs []error
	for _, t := range tenants {
		errs = append(errs, t.refuse())
	}

	crashpoint.Here("manager.stop.refused")
	errs = append(errs, m.closeDevices(ctx), m.faults.watch.Close(), m.admin.Close())
	crashpoint.Here("manager.stop.devices")
	for _, t := range tenants {
		t.cancel(errStopping)
	}

	grace := newGrace(closeGrace)
	for _, t := range tenants {
		errs = append(errs, t.Close(grace))
	}

	errs = append(errs, m.gates.Close(grace))
	m.spawner.Close()
	if err := m.jailer.Close(); err != nil { // processes that could not be ended are still in there
		m.log.Warn("a cgroup is left behind; the next device-manager removes it", "err", err)
	}

	crashpoint.Here("manager.stop.cells")
	errs = append(errs, m.ledger.Root().Zero(), m.ledger.Check())
	errs = append(errs, m.reconcile.Close())
	if m.cfg.Hardware != nil {
		errs = append(errs, m.cfg.Hardware.Close())
	}

	_, err := m.audit.Append("manager.stop", "", fmt.Sprintf("pid=%d", os.Getpid()))
	errs = append(errs, err, m.audit.Close(), m.dir.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop: %w", err)
	}

	m.say("stopped")
	return nil
}

// closeGrace is how long connections may take to end, all together.
const closeGrace = 3 * time.Second

// errStopping ends connections and requests in Close.
var errStopping = gpuerr.New(gpuerr.Disconnected, "device-manager is stopping")

// SocketPath returns the path of a tenant's socket (SEQPACKET).
func (m *Manager) SocketPath(tenant string) string { return m.dir.socketPath(tenant) }

// CapnpSocketPath returns the path of a tenant's Cap'n Proto socket (STREAM).
func (m *Manager) CapnpSocketPath(tenant string) string { return m.dir.capnpSocketPath(tenant) }

// Check verifies the ledger. It may be called at any time.
func (m *Manager) Check() error { return m.ledger.Check() }

// Usage returns the totals that are charged: connections, and the grants of drivers.
func (m *Manager) Usage() []ledger.Entry { return m.ledger.Root().Snapshot() }

// Tenants returns the names of the served tenants, in the policy's order.
func (m *Manager) Tenants() (names []string) {
	for _, t := range m.servers() {
		names = append(names, t.policy().Name)
	}
	return names
}

// tenantLog returns the log of a tenant that may use a device, or is losing it now; or nil.
func (m *Manager) tenantLog(device, tenant string) AuditLog {
	m.served.mu.Lock()
	defer m.served.mu.Unlock()
	for _, t := range slices.Concat(m.served.tenants, m.served.leaving) {
		if p := t.policy(); p.Name == tenant && p.mayUse(device) {
			return t.audit
		}
	}
	return nil
}
