package mock

import (
	"fmt"
	"time"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// End is what really happened to a job, whatever the sink was told.
type End uint8

const (
	Outstanding      End = iota
	Finished             // it ran to its end: done, trapped or failed
	Stopped              // cancelled while it ran
	CancelledInQueue     // cancelled before it ran
	EndedByReset         // a reset or Close ended it
	EndedGone            // the device left the bus
)

var endNames = [...]string{"outstanding", "finished", "stopped", "cancelledInQueue", "reset", "gone"}

// String is for people.
func (e End) String() string {
	if int(e) < len(endNames) {
		return endNames[e]
	}
	return fmt.Sprintf("unknown(%d)", uint8(e))
}

// Execution is the log's record of one job.
type Execution struct {
	ID        backend.JobID
	Ordinal   uint64 // jobs submitted to this device, from 1
	Op        backend.Op
	Program   string
	Fault     FaultKind // what the script had for it
	Started   bool
	StartedAt time.Duration // since Start of the device
	EndedAt   time.Duration
	End       End
	Outcome   outcome.Outcome // as the device saw it
	Bytes     uint64          // written; of a launch that ended ok, what it could write
	StrayIOVA uint64          // what the IOMMU refused; 0: nothing
	Digest    [32]byte        // with Options.LogDigests: SHA-256 of the writable spans in order
}

// executionLog is a ring of the last jobs. Guarded by Device.mu, except digests,
// which never changes.
type executionLog struct {
	digests bool
	ring    []Execution
	opened  uint64
}

// logRef names a record: its number from 1, 0 for none.
type logRef uint64

func newExecutionLog(entries int, digests bool) executionLog {
	return executionLog{digests: digests && entries > 0, ring: make([]Execution, entries)}
}

// Log returns the last jobs that were submitted, oldest first, and how many older
// ones it has forgotten.
func (d *Device) Log() (executions []Execution, forgotten uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &d.log
	n := min(l.opened, uint64(len(l.ring)))
	executions = make([]Execution, 0, n)
	for i := l.opened - n; i < l.opened; i++ {
		executions = append(executions, l.ring[i%uint64(len(l.ring))])
	}
	return executions, l.opened - n
}

// open begins the record of a job that was submitted.
func (l *executionLog) open(id backend.JobID, ordinal uint64, job *backend.Job, fault FaultKind) logRef {
	if len(l.ring) == 0 {
		return 0
	}
	e := Execution{ID: id, Ordinal: ordinal, Op: job.Op, Fault: fault}
	if job.Op == backend.OpLaunch {
		e.Program = job.Program.Info().Name
	}
	l.ring[l.opened%uint64(len(l.ring))] = e
	l.opened++
	return logRef(l.opened)
}

// at returns a record that has not been forgotten.
// none says that nothing is remembered.
func (l *executionLog) none() bool { return len(l.ring) == 0 }

// now is the time since a start, where anything is remembered.
func (l *executionLog) now(start time.Time) time.Duration {
	if l.none() {
		return 0
	}
	return time.Since(start)
}

func (l *executionLog) at(ref logRef) *Execution {
	if ref == 0 || l.opened-uint64(ref) >= uint64(len(l.ring)) {
		return nil
	}
	return &l.ring[uint64(ref-1)%uint64(len(l.ring))]
}

func (l *executionLog) begin(ref logRef, now time.Duration) {
	if e := l.at(ref); e != nil {
		e.Started, e.StartedAt = true, now
	}
}

// end records what became of a job that ran.
func (l *executionLog) end(ref logRef, r result, now time.Duration) {
	e := l.at(ref)
	if e == nil {
		return
	}
	e.Outcome, e.Bytes, e.StrayIOVA, e.Digest = r.outcome, r.written, r.stray, r.digest
	switch {
	case r.gone:
		l.close(ref, EndedGone, now)
	case r.wasReset:
		l.close(ref, EndedByReset, now)
	case r.outcome.Kind == outcome.Cancelled:
		l.close(ref, Stopped, now)
	default:
		l.close(ref, Finished, now)
	}
}

// close records the end of a job.
func (l *executionLog) close(ref logRef, how End, now time.Duration) {
	if e := l.at(ref); e != nil {
		e.End, e.EndedAt = how, now
	}
}
