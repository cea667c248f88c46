package manager

import (
	"context"

	"capgpu/ddf"
	"capgpu/schema"
)

type auditServer struct{ *grantServer }

// Append implements schema.HardwareAuditLog_Server.
func (s auditServer) Append(_ context.Context, call schema.HardwareAuditLog_append) error {
	kind, err := call.Args().Kind()
	if err != nil {
		return err
	}

	detail, err := call.Args().Detail()
	if err != nil {
		return err
	}

	index, err := s.auditAppend(kind, detail)
	if err != nil {
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	res.SetIndex(index)
	return nil
}

// Snapshot implements schema.HardwareAuditLog_Server.
func (s auditServer) Snapshot(_ context.Context, call schema.HardwareAuditLog_snapshot) error {
	records, head, err := s.auditSnapshot(call.Args().From(), call.Args().Max())
	if err != nil {
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	res.SetSize(head.Size)
	if err := res.SetRoot(head.Root[:]); err != nil {
		return err
	}

	list, err := res.NewRecords(int32(len(records)))
	if err != nil {
		return err
	}

	for i, r := range records {
		if err := setRecord(list.At(i), r); err != nil {
			return err
		}
	}

	return nil
}

func setRecord(to schema.AuditRecord, r ddf.AuditRecord) error {
	to.SetIndex(r.Index)
	to.SetTimeUnixNanos(r.Time.UnixNano())
	if err := to.SetKind(r.Kind); err != nil {
		return err
	}
	if err := to.SetTenant(r.Tenant); err != nil {
		return err
	}
	return to.SetDetail(r.Detail)
}

// Verify implements schema.HardwareAuditLog_Server.
func (s auditServer) Verify(_ context.Context, call schema.HardwareAuditLog_verify) error {
	head, err := s.logs.drivers.Head()
	if err != nil {
		return err
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	res.SetOk(true)
	res.SetSize(head.Size)
	return nil
}
