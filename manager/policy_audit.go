package manager

import "capgpu/audit"

// AuditPolicy configures the audit logs: that of the host, and one for each device and each
// tenant.
type AuditPolicy struct {
	Path   string      // of the host's; empty: audit.log in the run directory
	Host   AuditBounds // of the host's log
	Owners AuditBounds // of each other one
	// DriverBytes bounds the records of a day. A driver and the manager may record so much
	// about each tenant of a device, and the driver as much about itself. Further events are
	// counted.
	DriverBytes uint64
	// Launches: one of so many launches of a session is recorded; 0: none. All are counted.
	Launches uint64
	// RequireKernel: the manager starts only with the kernel's own account of the memory that
	// hardware functions can reach.
	RequireKernel bool
}

// AuditBounds bound one log.
type AuditBounds struct {
	MaxBytes uint64 // of one segment; 0: the log's own default
	Keep     int    // full segments beside the current one; 0: all
}

// Options returns the bounds as options of a log.
func (b AuditBounds) Options() audit.Options {
	return audit.Options{MaxBytes: b.MaxBytes, Keep: b.Keep}
}

// An owner's log is 64 MiB by default: enough for a day of a tenant's records on one device.
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
