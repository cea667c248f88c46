package audit

import (
	"time"

	"capgpu/gpuerr"
)

// runCommit writes and syncs what Append queued, all that is there at once.
func (l *Log) runCommit() {
	defer close(l.done)
	for range l.kick {
		if l.opts.GroupFsync > 0 {
			l.gather()
		}
		if !l.commit() {
			return
		}
	}
}

// gather lets more records come, unless somebody waits.
func (l *Log) gather() {
	timer := time.NewTimer(l.opts.GroupFsync)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.rush:
	}
}

// commit makes what is pending durable, or gives it up. It is false when the log
// is closing and nothing is left.
func (l *Log) commit() bool {
	l.mu.Lock()
	frames, from, to := l.pending, l.durable, l.end
	l.pending = nil
	if len(frames) == 0 {
		defer l.mu.Unlock()
		return !l.closing
	}
	l.mu.Unlock()

	err := l.write(frames, from.off)

	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.changed.Broadcast()
	if err != nil {
		l.failures++
		l.failure = gpuerr.New(gpuerr.IO, "write the audit log: %v", err)
		l.lastFailure = l.failure
		// What was queued meanwhile is chained to what is given up.
		l.lost += l.end.size - from.size
		if l.lostWritten > 0 {
			l.lost += l.lostWritten - 1
			l.lostWritten = 0
		}
		l.end, l.pending = from, nil
		for len(l.marks) > 0 && l.marks[len(l.marks)-1].index >= from.size {
			l.marks = l.marks[:len(l.marks)-1]
		}
		return true
	}
	l.failure, l.lostWritten = nil, 0
	l.durable = to
	return true
}

// write puts frames at off on disk, or leaves the file ending at off.
func (l *Log) write(frames []byte, off int64) error {
	if l.ragged {
		if err := l.file.Truncate(off); err != nil {
			return err
		}
		l.ragged = false
	}
	_, err := l.file.WriteAt(frames, off)
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		// Whatever got to disk of these frames must not stay: the next ones take
		// their place.
		l.ragged = l.file.Truncate(off) != nil
	}
	return err
}
