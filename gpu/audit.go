package gpu

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"capgpu/ddf"
	"capgpu/ledger"
)

const (
	auditBacklog = 1024 // records that wait for the log
	// auditPressure is the backlog at which control calls begin to wait for the
	// log. The rest of it is for what cannot wait: faults, resets, closes.
	auditPressure = auditBacklog / 2
	// auditPatience bounds that wait; a log that does not move must not keep
	// sessions from being closed.
	auditPatience = 5 * time.Second
	// auditGather is how long the record of a control call waits for others: they are
	// written one after the other, each with a call of the manager. A client's start makes
	// some twenty of them, and nobody waits for one; the goroutine that makes
	// them needs the processor first. Records about a tenant or the device do not wait.
	auditGather    = 5 * time.Millisecond
	maxDetailBytes = 1024
)

// auditRecord is one line on its way.
type auditRecord struct{ kind, detail string }

// auditWriter brings records to the audit log without holding up the goroutines that make
// them. Records that find no room are counted, and the count is recorded.
type auditWriter struct {
	sink    ddf.HardwareAuditLog // nil: nothing is recorded
	log     *slog.Logger
	records chan auditRecord
	moved   chan struct{} // capacity 1: there is less to write than before
	hurry   chan struct{} // capacity 1: there is much to write, or what does not wait
	quit    chan struct{}
	dropped atomic.Uint64
	failed  atomic.Uint64
	waiting atomic.Int64 // records that are not in the log yet
}

// idle reports whether all that was recorded is in the log.
func (w *auditWriter) idle() bool { return w.waiting.Load() == 0 }

func newAuditWriter(sink ddf.HardwareAuditLog, log *slog.Logger) *auditWriter {
	return &auditWriter{sink: sink, log: log, records: make(chan auditRecord, auditBacklog), moved: make(chan struct{}, 1), hurry: make(chan struct{}, 1), quit: make(chan struct{})}
}

// put never waits.
func (w *auditWriter) put(r auditRecord) {
	if w.sink == nil {
		return
	}
	w.waiting.Add(1)
	select {
	case w.records <- r:
		if len(w.records) >= auditPressure {
			nudge(w.hurry)
		}
	default:
		w.waiting.Add(-1)
		w.dropped.Add(1)
	}
}

// press waits while the log is behind: the back-pressure on control calls.
func (w *auditWriter) press() {
	if w.sink == nil || len(w.records) < auditPressure {
		return
	}
	patience := time.NewTimer(auditPatience)
	defer patience.Stop()
	for len(w.records) >= auditPressure {
		select {
		case <-w.moved:
		case <-patience.C:
			return
		}
	}
	nudge(w.moved) // for the next goroutine that waits
}

// runAudit writes until close, and then what is left.
func (w *auditWriter) runAudit() {
	for {
		select {
		case r := <-w.records:
			w.gather()
			w.write(r)
			w.writeAll()
		case <-w.quit:
			w.writeAll()
			return
		}
	}
}

// gather lets more records come.
func (w *auditWriter) gather() {
	timer := time.NewTimer(auditGather)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.hurry:
	case <-w.quit:
	}
}

// writeAll writes what is there.
func (w *auditWriter) writeAll() {
	for {
		select {
		case r := <-w.records:
			w.write(r)
		default:
			return
		}
	}
}

func (w *auditWriter) write(r auditRecord) {
	if err := w.sink.Append(r.kind, r.detail); err != nil {
		if w.failed.Add(1) == 1 { // once: a log that is full or gone stays so
			w.log.Error("audit record lost", "kind", r.kind, "error", err)
		}
	}
	if n := w.dropped.Swap(0); n > 0 {
		if err := w.sink.Append("audit.dropped", fmt.Sprintf("records=%d", n)); err != nil {
			w.failed.Add(1)
		}
	}
	w.waiting.Add(-1)
	nudge(w.moved)
}

func (w *auditWriter) close() { close(w.quit) }

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
	detail = detail[:min(len(detail), maxDetailBytes)]
	// Spent, whether or not there is room left: what happened is recorded.
	_ = payer.Spend(ledger.AuditBytes, uint64(len(kind)+len(detail)))
	d.records.put(auditRecord{kind: kind, detail: detail})
	nudge(d.records.hurry)
}

// audit records a control call of the session, and slows it to what the log takes.
func (s *Session) audit(kind, format string, args ...any) {
	if s.dev.cfg.Audit == nil {
		return
	}
	detail := fmt.Sprintf("tenant=%.64s session=%d ", s.tenant.name, s.id) + fmt.Sprintf(format, args...)
	detail = detail[:min(len(detail), maxDetailBytes)]
	_ = s.account.Spend(ledger.AuditBytes, uint64(len(kind)+len(detail)))
	s.dev.records.press()
	s.dev.records.put(auditRecord{kind: kind, detail: detail})
}

// audited refuses a call if its record could not be paid for.
func (s *Session) audited() error { return s.account.CanSpend(ledger.AuditBytes) }
