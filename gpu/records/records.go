// Package records brings the audit records of a device to its log without holding up the
// goroutines that make them.
package records

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"capgpu/ddf"
)

const (
	backlog = 1024 // records that wait for the log
	// Pressure is the backlog at which control calls begin to wait for the
	// log. The rest of it is for what cannot wait: faults, resets, closes.
	Pressure = backlog / 2
	// patience bounds that wait; a log that does not move must not keep
	// sessions from being closed.
	patience = 5 * time.Second
	// GatherTime is how long the record of a control call waits for others: they are
	// written one after the other, each with a call of the manager. A client's start makes
	// some twenty of them, and nobody waits for one; the goroutine that makes
	// them needs the processor first. Records about a tenant or the device do not wait.
	GatherTime = 5 * time.Millisecond
	// MaxDetailBytes bounds Record.Detail.
	MaxDetailBytes = 1024
)

// Record is one line on its way.
type Record struct{ Kind, Detail string }

// Writer writes to one log. Records that find no room are counted, and the count is recorded.
type Writer struct {
	sink    ddf.HardwareAuditLog // nil: nothing is recorded
	log     *slog.Logger
	records chan Record
	moved   chan struct{} // capacity 1: there is less to write than before
	hurry   chan struct{} // capacity 1: there is much to write, or what does not wait
	quit    chan struct{}
	dropped atomic.Uint64
	failed  atomic.Uint64
	waiting atomic.Int64 // records that are not in the log yet
}

// Idle reports whether all that was recorded is in the log.
func (w *Writer) Idle() bool { return w.waiting.Load() == 0 }

// New makes a writer; sink may be nil, and then nothing is recorded. Run it.
func New(sink ddf.HardwareAuditLog, log *slog.Logger) *Writer {
	return &Writer{sink: sink, log: log, records: make(chan Record, backlog), moved: make(chan struct{}, 1), hurry: make(chan struct{}, 1), quit: make(chan struct{})}
}

// Put never waits.
func (w *Writer) Put(r Record) {
	if w.sink == nil {
		return
	}
	w.waiting.Add(1)
	select {
	case w.records <- r:
		if len(w.records) >= Pressure {
			nudge(w.hurry)
		}
	default:
		w.waiting.Add(-1)
		w.dropped.Add(1)
	}
}

// Press waits while the log is behind: the back-Pressure on control calls.
func (w *Writer) Press() {
	if w.sink == nil || len(w.records) < Pressure {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for len(w.records) >= Pressure {
		select {
		case <-w.moved:
		case <-timer.C:
			return
		}
	}
	nudge(w.moved) // for the next goroutine that waits
}

// Run writes until Close, and then what is left.
func (w *Writer) Run() {
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
func (w *Writer) gather() {
	timer := time.NewTimer(GatherTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.hurry:
	case <-w.quit:
	}
}

// writeAll writes what is there.
func (w *Writer) writeAll() {
	for {
		select {
		case r := <-w.records:
			w.write(r)
		default:
			return
		}
	}
}

func (w *Writer) write(r Record) {
	if err := w.sink.Append(r.Kind, r.Detail); err != nil {
		if w.failed.Add(1) == 1 { // once: a log that is full or gone stays so
			w.log.Error("audit record lost", "kind", r.Kind, "error", err)
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

// Close has Run write what is left, and return.
func (w *Writer) Close() { close(w.quit) }

// Hurry has Run write what there is now.
func (w *Writer) Hurry() { nudge(w.hurry) }

// Lost counts the records that are not in the log and never will be.
func (w *Writer) Lost() uint64 { return w.dropped.Load() + w.failed.Load() }

// nudge leaves a token in a channel of capacity 1.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
