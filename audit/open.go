package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
)

// Open opens a log or begins one, checks all of it with every segment, and finishes or undoes
// a rotation that a crash interrupted. It fails with a *Damage if a record was changed, and
// with gpuerr.Busy while another process has it open.
func Open(path string, o Options) (*Log, error) {
	f, err := openCurrent(path)
	if err != nil {
		return nil, err
	}
	r, err := newReader(path, f)
	if err == nil {
		defer r.close()
		var l *Log
		if l, err = open(f, dirStore{path}, r, o); err == nil {
			return l, nil
		}
	}
	f.Close()
	return nil, fmt.Errorf("audit log %s: %w", path, err)
}

// openCurrent opens and locks the file at path, and makes it if it does not exist.
func openCurrent(path string) (*os.File, error) {
	for range maxLooks {
		f, err := os.OpenFile(path, os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			// Full segments without a current one: no crash leaves that.
			if numbers, listErr := segmentNumbers(path); listErr == nil && len(numbers) > 0 {
				return nil, fmt.Errorf("audit log %s: %w", path, &Damage{File: filepath.Base(path), Reason: fmt.Sprintf(
					"the file is missing, though segments up to %d are there", numbers[len(numbers)-1])})
			}
			f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		}
		if err != nil {
			return nil, gpuerr.New(gpuerr.IO, "open the audit log: %v", err)
		}
		if err := lock(f); err != nil {
			f.Close()
			return nil, gpuerr.New(gpuerr.Busy, "the audit log %s is in use by another process: %v", path, err)
		}
		st, err := f.Stat()
		if named, namedErr := os.Stat(path); err == nil && namedErr == nil && os.SameFile(st, named) {
			return f, nil
		}
		f.Close() // the log was rotated between open and lock
	}

	return nil, gpuerr.New(gpuerr.Busy, "the audit log %s is in use by another process", path)
}

// open takes over f, the current file of the log that r reads, if it succeeds.
func open(f file, st store, r *reader, o Options) (*Log, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}

	o.MaxBytes = max(o.MaxBytes, MinMaxBytes)
	l := &Log{store: st, file: &handle{file: f, users: 1}, opts: o,
		kick: make(chan struct{}, 1), rush: make(chan struct{}, 1), done: make(chan struct{})}
	l.changed = sync.NewCond(&l.mu)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.loadLocked(r); err != nil {
		return nil, err
	}

	at := r.at()
	tornAt, torn := at.off, r.scan
	if err := tidy(f, st, r, &at); err != nil {
		return nil, gpuerr.New(gpuerr.IO, "prepare the file: %v", err)
	}

	l.addSegmentLocked(at) // of an empty log
	l.durable, l.end = at, at
	go l.runCommit()
	if torn.tornBytes > 0 {
		l.appendLocked("audit.torn", "", fmt.Sprintf("cut off %d bytes at %d of a write that did not finish, SHA-256 %x", torn.tornBytes, tornAt, torn.tornSum))
	}

	l.noteRemovalLocked()
	poke(l.kick)
	return l, nil
}

// loadLocked reads everything up to the end, or up to a torn record.
//
// +checklocks:l.mu
func (l *Log) loadLocked(r *reader) error {
	for {
		_, err := r.next()
		if err == io.EOF || errors.Is(err, errTorn) {
			if at := r.at(); at.segment > 0 {
				l.addSegmentLocked(at)
			}
			return nil
		}
		if err != nil {
			return err
		}
		l.addSegmentLocked(r.before)
		l.noteMarkLocked(r.before)
	}
}

// addSegmentLocked notes the segment that p is in, unless it is the last one.
//
// +checklocks:l.mu
func (l *Log) addSegmentLocked(p position) {
	if n := len(l.segments); n == 0 || l.segments[n-1].number != p.segment {
		l.segments = append(l.segments, segment{number: p.segment, first: p.first, root: p.tree.root()})
	}
}

// tidy cuts torn bytes off the file, or begins a new one, and undoes a rotation that did not
// finish. at is the end of the records.
func tidy(f file, st store, r *reader, at *position) error {
	if r.scan.tornBytes > 0 {
		if err := f.Truncate(at.off); err != nil {
			return err
		}
	}

	crashpoint.Here("audit.open.cut")
	if !r.scan.started {
		*at = start()
		if _, err := f.WriteAt([]byte(header), 0); err != nil {
			return err
		}
	}

	if err := f.Sync(); err != nil {
		return err
	}

	if r.linked {
		if err := st.remove(at.segment); err != nil {
			return err
		}
	}

	if err := st.probe(); err != nil { // now, and not when the first segment is full
		return err
	}

	return st.sync() // a new name must survive a crash, too
}
