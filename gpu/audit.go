package gpu

import (
	"fmt"

	"capgpu/gpu/records"
	"capgpu/ledger"
)

// auditEvent records what happened to a tenant, or with nil to the device. It
// never waits. Tenants are named as the policy names them (a-z, 0-9, - and _), so
// that tenant=NAME can be searched for as it is.
func (d *Device) auditEvent(kind string, t *tenant, format string, args ...any) {
	if d.cfg.Audit == nil {
		return
	}
	payer, detail := d.ledger.Root(), fmt.Sprintf(format, args...)
	if t != nil {
		payer, detail = t.account, fmt.Sprintf("tenant=%.64s ", t.name)+detail
	}
	detail = detail[:min(len(detail), records.MaxDetailBytes)]
	// Spent, whether or not there is room left: what happened is recorded.
	_ = payer.Spend(ledger.AuditBytes, uint64(len(kind)+len(detail)))
	d.records.Put(records.Record{Kind: kind, Detail: detail})
	d.records.Hurry()
}

// audit records a control call of the session, and slows it to what the log takes.
func (s *Session) audit(kind, format string, args ...any) {
	if s.dev.cfg.Audit == nil {
		return
	}
	detail := fmt.Sprintf("tenant=%.64s session=%d ", s.tenant.name, s.id) + fmt.Sprintf(format, args...)
	detail = detail[:min(len(detail), records.MaxDetailBytes)]
	_ = s.account.Spend(ledger.AuditBytes, uint64(len(kind)+len(detail)))
	s.dev.records.Press()
	s.dev.records.Put(records.Record{Kind: kind, Detail: detail})
}

// audited refuses a call if its record could not be paid for.
func (s *Session) audited() error { return s.account.CanSpend(ledger.AuditBytes) }
