package manager

import (
	"math"
	"os"
	"regexp"
	"time"

	"capgpu/ledger"
)

// Policy says which tenants may use the device, and how much of it. ParsePolicy reads it from
// JSON; packaging/policy.json is an example with every field.
type Policy struct {
	Device DevicePolicy
	// Functions are hardware functions by index; empty: the fake function.
	Functions []FunctionPolicy
	ClaimAll  bool // serve every other display and accelerator function, too
	Audit     AuditPolicy
	Sandbox   SandboxPolicy
	Tenants   []Tenant
}

// DevicePolicy configures the fake function and its driver, and holds the defaults of all
// functions.
type DevicePolicy struct {
	MemoryBytes uint64 // DMA memory that all drivers of the function may hold
	IOVAEntries uint64 // mappings of it
	HugePages   bool   // see FunctionPolicy
	Faults      string // fault script of the mock; developer mode only
	Engine      string // executes programs on the mock: "auto" or "lane"; empty: its default
	Subgroup    uint64 // lanes of a subgroup of the mock; 0: its default
	Discrete    bool   // the mock has memory of its own, too
	// InterruptLimit is how many interrupts of one vector in a second are a storm.
	InterruptLimit uint64
	Respawn        RespawnPolicy
}

// RespawnPolicy bounds how often a dead driver is replaced: after the n-th death
// within Window the next driver starts FirstDelay × 2^(n-1) later, at most
// MaxDelay; more than Budget deaths before Ready within Window and the device is
// wedged. Deaths older than Window are forgiven.
type RespawnPolicy struct {
	Budget               int
	Window               time.Duration
	FirstDelay, MaxDelay time.Duration
	// Standby: while a driver lives, the process of the next one waits beside it.
	Standby bool
}

// Tenant is a tenant of the policy, with its rights.
type Tenant struct {
	Name                 string
	SocketMode           os.FileMode
	SocketUID, SocketGID int // -1: the manager's own
	// AllowedUIDs are the users that may connect, by SO_PEERCRED; AnyUID admits
	// every user that the socket's file mode admits.
	AllowedUIDs    []uint32
	AnyUID         bool
	Facet          uint32 // 0 memory, 1 program, 2 full: as in docs/wire.md
	Weight         uint32
	MaxConnections uint64
	IdleTimeout    time.Duration // of a connection without a session and without a request
	GateRate       uint64        // gates per second, once the burst is used up (gates.go)
	MaxDeadline    time.Duration // 0: the device's
	Limits         ledger.Limits // of all sessions of the tenant together
	Programs       []string      // that its sessions may open; empty: all
	Devices        []string      // names of usable functions; empty: all
}

// Tenant returns the tenant of this name, or nil.
func (p *Policy) Tenant(name string) *Tenant {
	for i := range p.Tenants {
		if p.Tenants[i].Name == name {
			return &p.Tenants[i]
		}
	}
	return nil
}

// Facet names, by their number.
var facetNames = [...]string{"memory", "program", "full"}

// Tenant names are part of file names and log lines.
var tenantName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

const (
	maxTenants = 64
	// maxProgramsBytes keeps an Attach message below 4,096 bytes.
	maxProgramsBytes = 2048
	maxPolicyBytes   = 1 << 20
)

func defaultDevicePolicy() DevicePolicy {
	return DevicePolicy{
		MemoryBytes:    defaultMemory(),
		IOVAEntries:    16384,
		InterruptLimit: DefaultInterruptLimit,
		Respawn:        RespawnPolicy{Budget: 5, Window: time.Minute, FirstDelay: 20 * time.Millisecond, MaxDelay: 5 * time.Second, Standby: true},
	}
}

func defaultTenant() Tenant {
	return Tenant{
		SocketMode: 0o600, SocketUID: -1, SocketGID: -1,
		Facet: 2, Weight: 1, MaxConnections: 64, IdleTimeout: 5 * time.Minute, GateRate: 16,
		Limits: defaultTenantLimits(),
	}
}

// defaultTenantLimits apply where a policy gives no limit: a missing line does not make a
// tenant unlimited.
func defaultTenantLimits() ledger.Limits {
	l := ledger.NoLimits()
	l[ledger.DeviceMemory] = 256 << 20
	l[ledger.HostMemory] = 256 << 20
	l[ledger.Sessions] = 64
	l[ledger.Buffers] = 4096
	l[ledger.Fences] = 4096
	l[ledger.Programs] = 256
	l[ledger.ProgramBytes] = 128 << 20
	l[ledger.QueueSlots] = 64 << 10
	l[ledger.InFlight] = 4096
	l[ledger.Descriptors] = 8192
	return l
}

// DevPolicy returns the policy of developer mode. Its tenants default (everything),
// memory-only (the memory facet) and limited (a small quota) are for the calling user alone.
func DevPolicy() *Policy {
	own := []uint32{uint32(os.Getuid())}
	full, memory, limited := defaultTenant(), defaultTenant(), defaultTenant()
	full.Name, full.AllowedUIDs = "default", own
	full.Limits[ledger.DeviceMemory] = 768 << 20
	full.Limits[ledger.HostMemory] = math.MaxUint64
	memory.Name, memory.AllowedUIDs, memory.Facet = "memory-only", own, 0
	limited.Name, limited.AllowedUIDs = "limited", own
	limited.MaxConnections = 4
	limited.Limits[ledger.DeviceMemory] = 1 << 20
	limited.Limits[ledger.Sessions] = 2
	limited.Limits[ledger.Buffers] = 8
	limited.Limits[ledger.Fences] = 8
	limited.Limits[ledger.Programs] = 4
	limited.Limits[ledger.QueueSlots] = 256
	limited.Limits[ledger.InFlight] = 64
	return &Policy{
		Device:  defaultDevicePolicy(),
		Audit:   defaultAuditPolicy(),
		Sandbox: defaultSandboxPolicy(),
		Tenants: []Tenant{full, memory, limited},
	}
}
