package manager

import (
	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/ledger"
)

// AuditLog is what the manager needs of a log; audit.Log is one. Append refuses
// while the log cannot be written, so that nothing is granted meanwhile; what
// Snapshot and Head tell of is on disk.
type AuditLog interface {
	Append(kind, tenant, detail string) (index uint64, err error)
	Snapshot(from uint64, max int) ([]ddf.AuditRecord, error)
	Head() (ddf.AuditHead, error)
	Sync() error
	Close() error
}

const (
	maxAuditKindBytes   = 64
	maxAuditDetailBytes = 1024
	maxAuditRecords     = 64       // of one snapshot
	maxAuditReplyBytes  = 32 << 10 // of one snapshot
	auditRecordBytes    = 64       // charged for a record besides its strings
)

// writer is who an audit record of this driver is by. No tenant has such a name.
func (g *grants) writer() string { return "@" + g.info.Name }

// auditAppend records what the driver says, as what the driver says.
func (g *grants) auditAppend(kind, detail string) (uint64, error) {
	switch {
	case kind == "" || len(kind) > maxAuditKindBytes:
		return 0, gpuerr.New(gpuerr.Invalid, "kind has %d bytes; it must have 1 to %d", len(kind), maxAuditKindBytes)
	case len(detail) > maxAuditDetailBytes:
		return 0, gpuerr.New(gpuerr.Invalid, "detail has %d bytes; it may have %d", len(detail), maxAuditDetailBytes)
	}
	g.sessions.heard(kind, detail) // also what there is no room to record
	bytes := uint64(len(kind) + len(detail) + auditRecordBytes)
	gap, err := g.shares.spend(detail, bytes)
	if err != nil {
		return 0, err
	}
	_ = g.account.Spend(ledger.AuditBytes, bytes) // for the books: the share is the limit
	if gap != "" {
		g.recordGap(gap)
	}
	return g.audit.Append(kind, g.writer(), detail)
}

// auditSnapshot shows a driver its own records; of the others only that they
// exist, so that indices and root mean the same to everybody.
func (g *grants) auditSnapshot(from uint64, max uint32) ([]ddf.AuditRecord, ddf.AuditHead, error) {
	if max == 0 {
		return nil, ddf.AuditHead{}, gpuerr.New(gpuerr.Invalid, "max is 0; ask for at least one record")
	}
	head, err := g.audit.Head()
	if err != nil || from >= head.Size {
		return nil, head, err
	}
	records, err := g.audit.Snapshot(from, int(min(max, maxAuditRecords)))
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
