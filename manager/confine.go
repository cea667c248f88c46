package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"

	"capgpu/internal/sandbox"
	"capgpu/internal/sandbox/devguard"
	"capgpu/ledger"
)

// options returns the options of a Jailer.
func (s *SandboxPolicy) options(log *slog.Logger) sandbox.Options {
	return sandbox.Options{Require: s.Require, UIDs: s.UIDs, GuardDevices: devguard.Attach, Log: log}
}

// confinement says how a child is confined.
type confinement struct {
	name    string // of the device or the tenant, for logs
	profile *sandbox.Profile
	limits  sandbox.Limits
	granted *sandbox.Granted // of an engine; nil: it is none
	// violation records that the child was killed for a system call outside its profile.
	violation func(pid int)
}

// The errors say why a child was ended.
var (
	errForbiddenCall = errors.New("killed for a forbidden system call")
	errOverMemory    = errors.New("killed: it used more memory than its limit (sandbox.memory of the policy)")
)

// checkConfined fails if something that the policy requires does not confine the child, and
// logs what confines it. The child has passed Enter once it has sent a message.
func (c *child) checkConfined(log *slog.Logger, level slog.Level, attrs ...any) error {
	if c.actor != nil { // an actor of this process
		return nil
	}
	enforced, err := c.cell.Check(c.pid())
	if err != nil {
		return fmt.Errorf("%s %d is not served: %w", c.name, c.pid(), err)
	}
	log.Log(context.Background(), level, "sandbox", append(attrs, "pid", c.pid(), "inForce", enforced.String())...)
	return nil
}

// confineDriver returns the confinement of the drivers of a device, a standby (epoch 0)
// included. DMA memory is charged to the driver's cgroup if the driver touches it first.
func (d *device) confineDriver(epoch *atomic.Uint64) confinement {
	p := &d.cfg.Policy.Sandbox
	var huge uint64
	if d.policy.HugePages {
		huge = d.policy.MemoryBytes
	}
	return confinement{
		name: d.name, profile: sandbox.Driver,
		limits: sandbox.Limits{MemoryBytes: addLimit(p.MemoryBytes, d.policy.MemoryBytes), HugeBytes: huge, Pids: p.Pids},
		violation: func(pid int) {
			d.record("sandbox.violation", fmt.Sprintf("driver %s epoch=%d pid=%d", d.name, epoch.Load(), pid))
		},
	}
}

// gateLimits returns the limits of a gate of the tenant. Memory that a gate maps for its
// client is charged to the gate's cgroup if the gate touches it first.
func (s *tenantServer) gateLimits() sandbox.Limits {
	p, t := &s.m.cfg.Policy.Sandbox, s.policy()
	var devices, huge uint64 // there are fewer than 65,536 devices
	for _, d := range s.m.devices {
		bytes := min(d.policy.MemoryBytes, math.MaxInt64>>16)
		devices += bytes
		if d.policy.HugePages {
			huge += bytes
		}
	}
	granted := t.Limits[ledger.DeviceMemory]
	return sandbox.Limits{
		MemoryBytes: addLimit(p.GateMemoryBytes, min(devices, granted)), HugeBytes: min(huge, granted), Pids: p.GatePids,
	}
}

// gateViolated records that a gate of the tenant was killed for a system call outside its
// profile.
func (s *tenantServer) gateViolated(pid int) {
	name := s.policy().Name
	if err := s.shares.appendPaced(name, name, "sandbox.violation", fmt.Sprintf("gate pid=%d", pid)); counted(err) != nil {
		s.log.Error("write the audit log", "kind", "sandbox.violation", "err", err)
	}
}

// gateShares bounds the records that the gates of a tenant cause in its log.
func gateShares(m *Manager, own AuditLog, log *slog.Logger) *auditShares {
	return newAuditShares("gates", m.cfg.Policy.Audit.DriverBytes, own, func(string) AuditLog { return own }, log)
}

// addLimit returns limit + more. 0 means no limit, and stays 0.
func addLimit(limit, more uint64) uint64 {
	if limit == 0 {
		return 0
	}
	return limit + min(more, math.MaxInt64-min(limit, math.MaxInt64))
}
