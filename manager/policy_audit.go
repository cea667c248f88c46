package manager

import "capgpu/audit"

// AuditPolicy is about the audit logs: that of the host, and those of each device and
// each tenant beside it.
type AuditPolicy struct {
	Path   string      // of the host's; empty: audit.log in the run directory
	Host   AuditBounds // of the host's log
	Owners AuditBounds // of each other one
	// DriverBytes is what may be recorded in a day about each tenant on one device, by
	// its driver and the manager, and as much by the driver about itself; what is more is
	// counted.
	DriverBytes uint64
	// Launches is every how many launches of a session one is recorded; 0: none,
	// they are only counted.
	Launches uint64
	// RequireKernel: no start without the kernel's own account of what functions on
	// hardware can reach.
	RequireKernel bool
}

// AuditBounds bound one log.
type AuditBounds struct {
	MaxBytes uint64 // of one segment; 0: the log's own default
	Keep     int    // full segments beside the current one; 0: all
}

// Options are the bounds as a log takes them.
func (b AuditBounds) Options() audit.Options {
	return audit.Options{MaxBytes: b.MaxBytes, Keep: b.Keep}
}

// An owner's log is 64 MiB by default: a tenant's holds a day of what may be recorded
// about it on one device.
const (
	ownersMaxBytes = 8 << 20
	ownersKeep     = 7
)

func defaultAuditPolicy() AuditPolicy {
	return AuditPolicy{
		Host:        AuditBounds{Keep: audit.DefaultKeep},
		Owners:      AuditBounds{MaxBytes: ownersMaxBytes, Keep: ownersKeep},
		DriverBytes: 64 << 20,
	}
}

func (a *AuditPolicy) parse(n *node) error {
	all := fields{
		"path":        func(n *node) error { return text(n, "audit.path", &a.Path) },
		"owners":      func(n *node) error { return n.fields("audit.owners", a.Owners.fields("audit.owners")) },
		"driverBytes": n.into(&a.DriverBytes, "audit.driverBytes", size),
		"launches":    n.into(&a.Launches, "audit.launches", count),
		"requireKernel": func(n *node) error {
			if n.kind != boolNode {
				return at(n.off, "audit.requireKernel must be true or false, not %s", nodeKinds[n.kind])
			}
			a.RequireKernel = n.boolean
			return nil
		},
	}
	for name, parse := range a.Host.fields("audit") {
		all[name] = parse
	}

	return n.fields("audit", all)
}

func (b *AuditBounds) fields(what string) fields {
	return fields{
		"maxBytes": func(n *node) (err error) {
			b.MaxBytes, err = size(n, what+".maxBytes")
			if err == nil && b.MaxBytes < audit.MinMaxBytes {
				err = at(n.off, "%s.maxBytes is %d; a segment of the log has at least %d bytes", what, b.MaxBytes, audit.MinMaxBytes)
			}
			return err
		},
		"keep": func(n *node) error {
			v, err := bounded(n, what+".keep", 0, 1_000_000)
			b.Keep = int(v)
			return err
		},
	}
}
