package ddfrpc

import (
	"math"
	"time"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/schema"
)

// auditLog is the manager's ddf.HardwareAuditLog.
type auditLog struct {
	link   *Link
	remote schema.HardwareAuditLog
}

// maxRecordBytes is refused here already: the link would be closed by a message
// that is longer than the manager takes.
const maxRecordBytes = 4096

// Append implements ddf.HardwareAuditLog.
func (a *auditLog) Append(kind, detail string) error {
	if len(kind) > maxRecordBytes || len(detail) > maxRecordBytes {
		return gpuerr.New(gpuerr.Invalid, "kind has %d and detail %d bytes; neither may have more than %d", len(kind), len(detail), maxRecordBytes)
	}
	return a.link.insist(func() error {
		f, release := a.remote.Append(a.link.ctx, func(args schema.HardwareAuditLog_append_Params) error {
			if err := args.SetKind(kind); err != nil {
				return err
			}
			return args.SetDetail(detail)
		})
		defer release()
		_, err := f.Struct()
		return err
	})
}

// Snapshot implements ddf.HardwareAuditLog.
func (a *auditLog) Snapshot(from uint64, max int) ([]ddf.AuditRecord, error) {
	records, _, err := a.snapshot(from, max)
	return records, err
}

func (a *auditLog) snapshot(from uint64, max int) ([]ddf.AuditRecord, ddf.AuditHead, error) {
	var head ddf.AuditHead
	if max <= 0 {
		return nil, head, gpuerr.New(gpuerr.Invalid, "max is %d; ask for at least one record", max)
	}

	leave, err := a.link.enter(a.link.ctx, a.link.asking)
	if err != nil {
		return nil, head, errRevoked
	}

	defer leave()
	f, release := a.remote.Snapshot(a.link.ctx, func(args schema.HardwareAuditLog_snapshot_Params) error {
		args.SetFrom(from)
		args.SetMax(uint32(min(uint64(max), math.MaxUint32)))
		return nil
	})
	defer release()
	res, err := f.Struct()
	if err != nil {
		return nil, head, a.link.mapped(err)
	}

	root, err := res.Root()
	if err != nil || len(root) != len(head.Root) {
		return nil, head, gpuerr.New(gpuerr.Protocol, "the root of the audit log has %d bytes (%v)", len(root), err)
	}

	head.Size = res.Size()
	copy(head.Root[:], root)
	list, err := res.Records()
	if err != nil {
		return nil, head, err
	}

	records := make([]ddf.AuditRecord, list.Len())
	for i := range records {
		if records[i], err = record(list.At(i)); err != nil {
			return nil, head, err
		}
	}

	return records, head, nil
}

func record(r schema.AuditRecord) (ddf.AuditRecord, error) {
	kind, err := r.Kind()
	if err != nil {
		return ddf.AuditRecord{}, err
	}
	tenant, err := r.Tenant()
	if err != nil {
		return ddf.AuditRecord{}, err
	}
	detail, err := r.Detail()
	if err != nil {
		return ddf.AuditRecord{}, err
	}
	return ddf.AuditRecord{Index: r.Index(), Time: time.Unix(0, r.TimeUnixNanos()), Kind: kind, Tenant: tenant, Detail: detail}, nil
}

// Verify implements ddf.HardwareAuditLog: the manager verifies, and returns the head it then
// has.
func (a *auditLog) Verify() (ddf.AuditHead, error) {
	ok, err := a.verify()
	if err != nil {
		return ddf.AuditHead{}, err
	}
	if !ok {
		return ddf.AuditHead{}, gpuerr.New(gpuerr.Internal, "the audit log does not verify")
	}
	_, head, err := a.snapshot(math.MaxUint64, 1)
	return head, err
}

func (a *auditLog) verify() (bool, error) {
	leave, err := a.link.enter(a.link.ctx, a.link.asking)
	if err != nil {
		return false, errRevoked
	}
	defer leave()
	f, release := a.remote.Verify(a.link.ctx, nil)
	defer release()
	res, err := f.Struct()
	if err != nil {
		return false, a.link.mapped(err)
	}
	return res.Ok(), nil
}

var _ ddf.HardwareAuditLog = (*auditLog)(nil)
