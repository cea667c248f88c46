package manager

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/sandbox"
	"capgpu/internal/sanitize"
	"capgpu/iommu"
	"capgpu/manager/engines"
	"capgpu/manager/gpulog"
	"capgpu/manager/nodes"
)

// nodeFunction is a function that a driver of the kernel keeps, or a device in software. Its
// driver process is gpu-service, which gets DMA memory and engines, and no register, no
// vector and no node. Addresses of its memory are names: the kernel's driver and the GPU's MMU
// decide what the device reaches, and no IOMMU domain of ours.
type nodeFunction struct {
	name   string
	policy FunctionPolicy
	host   nodes.Host
	info   ddf.DeviceInfo
	domain *iommu.Fake
	pool   *engines.Pool
	log    *slog.Logger
	life   AuditLog
	kernel *gpulog.Follower // nil: what the kernel says is not read
	paced  *rateLimiter     // of records of it
}

var (
	_ Function     = (*nodeFunction)(nil)
	_ engineHolder = (*nodeFunction)(nil)
)

// openNodeFunction ends the engines of an earlier manager and looks at the nodes.
func (m *Manager) openNodeFunction(p FunctionPolicy) (Function, error) {
	life, _, err := m.deviceLogs(p.Name)
	if err != nil {
		return nil, err
	}
	f := &nodeFunction{name: p.Name, policy: p, info: ddf.DeviceInfo{PCIAddress: p.Address}, domain: iommu.NewFake([]iommu.Range{fakeRange}, fakeEntries)}
	if f.info.VendorID, f.info.DeviceID, err = f.host.IDs(p.Address); err != nil {
		return nil, err
	}
	granted, err := f.granted()
	if err != nil {
		return nil, err
	}

	journal, err := engines.OpenJournal(filepath.Join(m.dir.path, "engines."+p.Name), engines.DefaultTimes.Death)
	if err != nil {
		return nil, err
	}
	log := m.log.With("device", p.Name)
	f.pool = engines.New(engines.Config{
		Device: p.Name, Most: p.Node.Most, Journal: journal, Log: log,
		Spawn: func(link, control *os.File) (engines.Process, error) {
			return m.spawnEngine(log, p, granted, life, link, control)
		},
		Record: func(kind, detail string) error { _, err := life.Append(kind, "", detail); return err },
	})
	m.warnUnconfined(p, log)
	f.log, f.life, f.paced = log, life, newRateLimiter(faultBurst, faultInterval, time.Now())
	if p.Address != "" {
		if f.kernel, err = gpulog.Follow(gpulog.Path, f.takeReport); err != nil {
			log.Warn("errors that the GPU's kernel driver reports are not recorded", "err", err)
		}
	}
	return f, nil
}

// takeReport records what the kernel's driver says of the function. An engine that it surely
// names for a fault is ended; nothing waits for such a report.
func (f *nodeFunction) takeReport(e gpulog.Event) {
	if !e.Concerns(f.info.PCIAddress) {
		return
	}
	who := "engine=none group=none"
	named, ours := f.pool.Find(e.PID)
	if ours {
		who = fmt.Sprintf("engine=%d group=none", named.Engine)
		if named.Open {
			who = fmt.Sprintf("engine=%d group=%d", named.Engine, named.Group)
		}
	}
	if more, ok := f.paced.allow(time.Now()); ok {
		detail := fmt.Sprintf("%s kind=%s xid=%d pid=%d %s before=%d text=%q", f.name, e.Kind, e.Xid, e.PID, who, more, sanitize.Text(e.Text))
		f.log.Warn("the kernel's driver reports an error of the GPU", "kind", e.Kind, "xid", e.Xid, "pid", e.PID, "text", sanitize.Text(e.Text))
		if _, err := f.life.Append("gpu.trouble", "", detail); err != nil {
			f.log.Error("write the audit log", "kind", "gpu.trouble", "err", err)
		}
	}
	if ours && e.Sure {
		f.pool.Blame(e.PID, fmt.Sprintf("the kernel's driver reports %s %d of it", e.Kind, e.Xid))
	}
}

// warnUnconfined says loudly what does not confine engines here. They have code of strangers
// in them, and nodes of the kernel's driver.
func (m *Manager) warnUnconfined(p FunctionPolicy, log *slog.Logger) {
	var names []string
	for _, missing := range m.jailer.Missing() {
		names = append(names, string(missing.Mechanism))
	}
	if names == nil {
		return
	}
	m.say("device %s: its engines are not confined by %s; see the log, and use them for what you trust", p.Name, strings.Join(names, ", "))
	log.Warn("engines are not confined", "by", strings.Join(names, ","))
}

// granted returns what engines see, and looks at the nodes.
func (f *nodeFunction) granted() (*sandbox.Granted, error) {
	n := f.policy.Node
	g := &sandbox.Granted{Root: sandbox.Root{Run: n.Libraries, Read: slices.Clone(n.Files), Nodes: n.Nodes, Proc: n.Proc}}
	if n.Kind == kindVulkan && g.Root.Run == nil {
		g.Root.Run = usualLibraries()
	}
	if n.ICD != "" {
		g.Root.Read = append(g.Root.Read, n.ICD)
	}
	for _, path := range slices.Concat(g.Root.Run, g.Root.Read) {
		if _, err := os.Stat(path); err != nil {
			return nil, gpuerr.New(gpuerr.NoDevice, "engines of %s need %s: %v; correct libraries, files or icd of the policy (gpuctl doctor)", f.name, path, err)
		}
	}

	found, err := f.host.Check(n.Nodes, f.policy.Address)
	if err != nil {
		return nil, err
	}
	for _, node := range found {
		g.Devices = append(g.Devices, sandbox.Device{Major: node.Major, Minor: node.Minor})
		if node.Mode&0o006 != 0o006 && node.Mode&0o060 == 0o060 && !slices.Contains(g.Groups, node.GID) {
			g.Groups = append(g.Groups, node.GID)
		}
	}
	return g, nil
}

// spawnEngine starts an engine through its launcher.
func (m *Manager) spawnEngine(log *slog.Logger, p FunctionPolicy, g *sandbox.Granted, life AuditLog, link, control *os.File) (engines.Process, error) {
	program := m.cfg.engine(p.Node)
	file, err := os.Open(program)
	if err != nil {
		return nil, fmt.Errorf("find the engine: %w", err)
	}
	defer file.Close()

	launched := sandbox.Launched{Program: program, Env: engineEnv(p.Node, g), Root: g.Root}
	if p.Address != "" {
		launched.Args = []string{"--address", p.Address}
	}
	limits := m.cfg.Policy.Sandbox
	how := confinement{
		name: p.Name, profile: sandbox.Engine, granted: g,
		limits: sandbox.Limits{MemoryBytes: addLimit(p.Node.EngineBytes, p.MemoryBytes), Pids: limits.Pids},
		violation: func(pid int) {
			if _, err := life.Append("sandbox.violation", "", fmt.Sprintf("engine %s pid=%d", p.Name, pid)); err != nil {
				log.Error("write the audit log", "kind", "sandbox.violation", "err", err)
			}
		},
	}
	if p.HugePages {
		how.limits.HugeBytes = p.MemoryBytes
	}
	c, err := m.spawner.start(log, "engine", how, m.cfg.LauncherPath, []string{launched.Text()}, link, control, file)
	if err != nil {
		return nil, err
	}
	return engineProcess{c, log, p.Name}, nil
}

// engineEnv is all of an engine's environment.
func engineEnv(n *NodePolicy, g *sandbox.Granted) []string {
	if n.Kind != kindVulkan {
		return nil
	}
	env := []string{
		// Nothing is taken from elsewhere: no layer, no cache. A cache on the disk would be
		// shared by all engines, and is code.
		"VK_LOADER_LAYERS_DISABLE=*", "MESA_SHADER_CACHE_DISABLE=true", "__GL_SHADER_DISK_CACHE=0", "LP_NUM_THREADS=0",
	}
	if n.ICD != "" {
		env = append(env, "VK_DRIVER_FILES="+n.ICD, "VK_ICD_FILENAMES="+n.ICD) // the second for loaders before 1.3.207
	}
	if len(n.Libraries) > 0 {
		env = append(env, "LD_LIBRARY_PATH="+strings.Join(g.Root.Run, ":"))
	}
	return env
}

// engineProcess is a child as package engines sees it.
type engineProcess struct {
	*child
	log  *slog.Logger
	name string
}

func (p engineProcess) PID() int                { return p.pid() }
func (p engineProcess) Exited() <-chan struct{} { return p.exited }
func (p engineProcess) Reason() error           { return p.err }
func (p engineProcess) Kill()                   { p.kill() }
func (p engineProcess) Check() error {
	return p.checkConfined(p.log, slog.LevelInfo, "engine", p.name)
}

func (f *nodeFunction) enginePool() *engines.Pool { return f.pool }

// Identity implements Function.
func (f *nodeFunction) Identity() ddf.DeviceInfo { return f.info }

// Domain implements Function.
func (f *nodeFunction) Domain() iommu.Domain { return f.domain }

// Windows implements Function: there is none.
func (f *nodeFunction) Windows() []ddf.WindowSpec { return nil }

var errNoWindow = gpuerr.New(gpuerr.Denied, "the kernel's driver has the registers of this function")

// WindowFD implements Function.
func (f *nodeFunction) WindowFD(int) (int, uint64, error) { return -1, 0, errNoWindow }

// Load32 implements Function.
func (f *nodeFunction) Load32(int, uint64) (uint32, error) { return 0, errNoWindow }

// Store32 implements Function.
func (f *nodeFunction) Store32(int, uint64, uint32) error { return errNoWindow }

// Vectors implements Function: there is none.
func (f *nodeFunction) Vectors() int { return 0 }

// EventFD implements Function.
func (f *nodeFunction) EventFD(int) (int, error) { return -1, errNoWindow }

// SetMask implements Function.
func (f *nodeFunction) SetMask(int, bool) error { return errNoWindow }

// Interrupts implements Function.
func (f *nodeFunction) Interrupts() []uint64 { return nil }

// Begin implements Function. It checks that each node is still the policy's: a driver that was
// loaded anew may have given its number to another function.
func (f *nodeFunction) Begin() (reset string, err error) {
	if _, err := f.granted(); err != nil {
		return "", err
	}
	return "engines", f.pool.Begin()
}

// Quiesce implements Function: it kills all engines.
func (f *nodeFunction) Quiesce() (how string, err error) { return "engines killed", f.pool.End() }

// Trouble implements Function.
func (f *nodeFunction) Trouble() <-chan error { return f.pool.Trouble() }

// Removed implements Function: the kernel's driver would see it first.
func (f *nodeFunction) Removed() <-chan struct{} { return nil }

// Cause implements Function.
func (f *nodeFunction) Cause() error { return nil }

// Close implements Function. Idempotent.
func (f *nodeFunction) Close() error {
	return errors.Join(f.pool.Close(), f.kernel.Close(), f.domain.Close())
}
