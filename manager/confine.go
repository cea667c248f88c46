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

// options are what a Jailer is made from.
func (s *SandboxPolicy) options(log *slog.Logger) sandbox.Options {
	return sandbox.Options{Require: s.Require, UIDs: s.UIDs, GuardDevices: devguard.Attach, Log: log}
}

// confinement is how a child is to be confined.
type confinement struct {
	name    string // of the device or the tenant, for logs
	profile *sandbox.Profile
	limits  sandbox.Limits
	// violation records that the child was killed for a system call that its
	// profile does not have.
	violation func(pid int)
}

// Why a child ended that did not end by itself.
var (
	errForbiddenCall = errors.New("killed for a forbidden system call")
	errOverMemory    = errors.New("killed: it used more memory than its limit (sandbox.memory of the policy)")
)

// checkConfined fails if something that the policy requires does not confine the
// child, and logs what does. The child has passed Enter when it has said a word.
func (c *child) checkConfined(log *slog.Logger, level slog.Level, attrs ...any) error {
	if c.actor != nil { // in this process
		return nil
	}
	enforced, err := c.cell.Check(c.pid())
	if err != nil {
		return fmt.Errorf("%s %d is not served: %w", c.name, c.pid(), err)
	}
	log.Log(context.Background(), level, "sandbox", append(attrs, "pid", c.pid(), "inForce", enforced.String())...)
	return nil
}

// confineDriver is how the drivers of a device are confined, a standby as well (epoch
// 0). Its DMA memory counts as the driver's where the driver is the first to touch it.
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

// gateLimits are those of a gate of the tenant. Memory that it maps for its client counts
// as the gate's where it is the first to touch it.
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

// gateViolated records that a gate of the tenant was killed for a system call that its
// profile does not have.
func (s *tenantServer) gateViolated(pid int) {
	name := s.policy().Name
	if err := s.shares.appendPaced(name, name, "sandbox.violation", fmt.Sprintf("gate pid=%d", pid)); counted(err) != nil {
		s.log.Error("write the audit log", "kind", "sandbox.violation", "err", err)
	}
}

// gateShares is what the gates of a tenant may have recorded in its log.
func gateShares(m *Manager, own AuditLog, log *slog.Logger) *auditShares {
	return newAuditShares("gates", m.cfg.Policy.Audit.DriverBytes, own, func(string) AuditLog { return own }, log)
}

// addLimit is limit + more; 0 is no limit and stays so.
func addLimit(limit, more uint64) uint64 {
	if limit == 0 {
		return 0
	}
	return limit + min(more, math.MaxInt64-min(limit, math.MaxInt64))
}
