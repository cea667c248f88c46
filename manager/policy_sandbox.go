package manager

import (
	"slices"

	"capgpu/internal/sandbox"
)

// SandboxPolicy configures the confinement of the processes that the manager starts.
type SandboxPolicy struct {
	// Require lists the mechanisms that must confine them; without these no process starts.
	// Other mechanisms that the host lacks are left out and logged.
	Require []sandbox.Mechanism
	// MemoryBytes is what a driver may use besides its function's DMA memory; GateMemoryBytes
	// is what a gate may use besides its tenant's memory.
	MemoryBytes, GateMemoryBytes uint64
	Pids, GatePids               uint64           // threads
	UIDs                         sandbox.UIDRange // one for each process
}

func defaultSandboxPolicy() SandboxPolicy {
	return SandboxPolicy{MemoryBytes: 1 << 30, GateMemoryBytes: 256 << 20, Pids: 512, GatePids: 128, UIDs: sandbox.DefaultUIDs}
}

func (s *SandboxPolicy) parse(n *node) error {
	err := n.fields("sandbox", fields{
		"require":    func(n *node) error { return s.parseRequire(n) },
		"memory":     n.into(&s.MemoryBytes, "sandbox.memory", size),
		"gateMemory": n.into(&s.GateMemoryBytes, "sandbox.gateMemory", size),
		"pids":       func(n *node) error { return pids(n, "sandbox.pids", &s.Pids) },
		"gatePids":   func(n *node) error { return pids(n, "sandbox.gatePids", &s.GatePids) },
		"uids": func(n *node) error {
			err := n.fields("sandbox.uids", fields{
				"first": func(n *node) error { return number32(n, "sandbox.uids.first", &s.UIDs.First) },
				"count": func(n *node) error { return number32(n, "sandbox.uids.count", &s.UIDs.Count) },
			})
			if err != nil {
				return err
			}
			if err := s.UIDs.Check(); err != nil {
				return at(n.off, "sandbox.uids: %v", err)
			}
			return nil
		},
	})
	return err
}

// minPids is what the runtime of an idle process needs, with room for a burst.
const minPids = 16

func pids(n *node, what string, to *uint64) (err error) {
	*to, err = bounded(n, what, minPids, 1<<22)
	return err
}

func number32(n *node, what string, to *uint32) error {
	v, err := bounded(n, what, 1, 1<<31-1)
	*to = uint32(v)
	return err
}

// parseRequire reads a list of mechanisms, or "all".
func (s *SandboxPolicy) parseRequire(n *node) error {
	if n.kind == textNode && n.text == "all" {
		s.Require = sandbox.Mechanisms
		return nil
	}

	if n.kind != arrayNode {
		return at(n.off, `sandbox.require must be "all" or a list of names, not %s`, nodeKinds[n.kind])
	}

	s.Require = nil
	for _, e := range n.array {
		if e.kind != textNode {
			return at(e.off, "sandbox.require must hold names, not %s", nodeKinds[e.kind])
		}
		m, err := sandbox.ParseMechanism(e.text)
		if err != nil {
			return at(e.off, "sandbox.require: %v", err)
		}
		if slices.Contains(s.Require, m) {
			return at(e.off, "sandbox.require names %q twice; remove one", m)
		}
		s.Require = append(s.Require, m)
	}

	return nil
}
