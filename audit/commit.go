package audit

import (
	"time"

	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
)

// runCommit writes and syncs what Append queued, all that is there at once.
func (l *Log) runCommit() {
	defer close(l.done)
	l.removeOld() // left over by a crash
	for range l.kick {
		if l.opts.GroupFsync > 0 {
			l.gather()
		}
		if !l.commit() {
			return
		}
	}
}

// gather lets more records come, unless a caller waits.
func (l *Log) gather() {
	timer := time.NewTimer(l.opts.GroupFsync)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.rush:
	}
}

// commit makes the pending records durable, or gives them up. It returns false when the log
// is closing and nothing is left.
func (l *Log) commit() bool {
	l.mu.Lock()
	batches := l.pending
	l.pending, l.pendingBytes = nil, 0
	if len(batches) == 0 {
		defer l.mu.Unlock()
		return !l.closing
	}
	l.mu.Unlock()

	for _, b := range batches {
		if err := l.commitBatch(b); err != nil {
			l.giveUp(err)
			return true
		}
	}

	l.removeOld()
	return true
}

// commitBatch makes one batch durable.
func (l *Log) commitBatch(b batch) error {
	if b.header != nil {
		if err := l.rotate(b); err != nil {
			return err
		}
	}

	if l.unsynced {
		if err := l.store.sync(); err != nil {
			return err
		}
		l.unsynced = false
	}

	if err := l.write(b.frames, b.from.off); err != nil {
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure, l.lostWritten = nil, 0
	l.durable = b.to
	l.changed.Broadcast()
	return nil
}

// giveUp goes back to the records on disk.
func (l *Log) giveUp(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.changed.Broadcast()
	l.failures++
	l.failure = gpuerr.New(gpuerr.IO, "write the audit log: %v", err)
	l.lastFailure = l.failure

	// Records queued meanwhile are chained to those that are given up.
	l.lost += l.end.size - l.durable.size
	if l.lostWritten > 0 {
		l.lost += l.lostWritten - 1
		l.lostWritten = 0
	}

	l.end, l.pending, l.pendingBytes = l.durable, nil, 0
	for l.segments[len(l.segments)-1].number > l.durable.segment {
		l.segments = l.segments[:len(l.segments)-1]
	}

	s := &l.segments[len(l.segments)-1]
	for len(s.marks) > 0 && s.marks[len(s.marks)-1].index >= l.durable.size {
		s.marks = s.marks[:len(s.marks)-1]
	}
}

// write puts frames at off on disk, or leaves the file ending at off.
func (l *Log) write(frames []byte, off int64) error {
	file := l.currentFile()
	if l.ragged {
		if err := file.Truncate(off); err != nil {
			return err
		}
		l.ragged = false
	}

	if crashpoint.Built { // the same write again: the state of a write that does not finish
		_, _ = file.WriteAt(frames[:len(frames)-1], off) // within a frame, however many there are
		crashpoint.Here("audit.append.half")
	}

	_, err := file.WriteAt(frames, off)
	if err == nil {
		crashpoint.Here("audit.append.written")
		err = file.Sync()
	}

	if err != nil {
		// Frames of these that got to disk must not stay: the next ones take their place.
		l.ragged = file.Truncate(off) != nil
	}

	return err
}
