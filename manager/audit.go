package manager

import (
	"fmt"

	"capgpu/audit"
	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/ledger"
)

// AuditLog is the part of a log that the manager uses; audit.Log is one. Append fails while
// the log cannot be written, so that nothing is granted without a record. Records that
// Snapshot and Head report are on disk.
type AuditLog interface {
	Append(kind, tenant, detail string) (index uint64, err error)
	Snapshot(from uint64, max int) ([]ddf.AuditRecord, error)
	Head() (ddf.AuditHead, error)
	Sync() error
	Close() error
}

// auditKeeper is an AuditLog that also keeps separate logs for tenants and devices, so that
// their records push nothing out of the host's log; audit.Set is one.
type auditKeeper interface {
	Keep(audit.Owner) (*audit.Log, error)
	Release(audit.Owner) error
}

// keepLog returns the log of an owner, or the manager's own log if that keeps no others.
func (m *Manager) keepLog(o audit.Owner) (AuditLog, error) {
	k, ok := m.audit.(auditKeeper)
	if !ok {
		return m.audit, nil
	}
	l, err := k.Keep(o)
	if err != nil {
		return nil, fmt.Errorf("open the audit log of %s: %w", o, err)
	}
	return l, nil
}

// deviceLogs returns the logs of a device and of its drivers.
func (m *Manager) deviceLogs(name string) (device, drivers AuditLog, err error) {
	if device, err = m.keepLog(audit.OfDevice(name)); err != nil {
		return nil, nil, err
	}
	drivers, err = m.keepLog(audit.OfDriver(name))
	return device, drivers, err
}

// releaseLog closes the log of an owner that was removed.
func (m *Manager) releaseLog(o audit.Owner) error {
	if k, ok := m.audit.(auditKeeper); ok {
		return k.Release(o)
	}
	return nil
}

const (
	maxAuditKindBytes   = 64
	maxAuditDetailBytes = 1024
	maxAuditRecords     = 64       // of one snapshot
	maxAuditReplyBytes  = 32 << 10 // of one snapshot
	auditRecordBytes    = 64       // of a record in a snapshot, besides its strings
)

// writer is the name under which this driver's records are written. No tenant has such a
// name.
func (g *grants) writer() string { return "@" + g.info.Name }

// auditAppend writes a record of the driver under the driver's name.
func (g *grants) auditAppend(kind, detail string) (uint64, error) {
	switch {
	case kind == "" || len(kind) > maxAuditKindBytes:
		return 0, gpuerr.New(gpuerr.Invalid, "kind has %d bytes; it must have 1 to %d", len(kind), maxAuditKindBytes)
	case len(detail) > maxAuditDetailBytes:
		return 0, gpuerr.New(gpuerr.Invalid, "detail has %d bytes; it may have %d", len(detail), maxAuditDetailBytes)
	}
	g.sessions.observe(kind, detail) // even if the share has no room to record it
	index, err := g.logs.shares.append(g.logs.shares.tenantOf(detail), g.writer(), kind, detail)
	if err != nil {
		return 0, err
	}
	_ = g.account.Spend(ledger.AuditBytes, audit.RecordBytes(kind, g.writer(), detail)) // only for the ledger: the share is the limit
	return index, nil
}

// auditSnapshot returns records of the device's log to its driver. Only its own records are
// readable; the others are there in place, so that indices and root agree for all readers.
func (g *grants) auditSnapshot(from uint64, max uint32) ([]ddf.AuditRecord, ddf.AuditHead, error) {
	if max == 0 {
		return nil, ddf.AuditHead{}, gpuerr.New(gpuerr.Invalid, "max is 0; ask for at least one record")
	}

	head, err := g.logs.drivers.Head()
	if err != nil || from >= head.Size {
		return nil, head, err
	}

	records, err := g.logs.drivers.Snapshot(from, int(min(max, maxAuditRecords)))
	if err != nil {
		return nil, head, err
	}

	total := 0
	for i := range records {
		if r := &records[i]; r.Tenant != g.writer() {
			r.Kind, r.Tenant, r.Detail = "other", "", ""
		}
		if total += len(records[i].Kind) + len(records[i].Detail) + auditRecordBytes; total > maxAuditReplyBytes {
			return records[:i], head, nil
		}
	}

	return records, head, nil
}
