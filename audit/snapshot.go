package audit

import (
	"errors"
	"io"
	"io/fs"
	"sort"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

// span is a part of one segment that Snapshot reads.
type span struct {
	number uint64
	file   *handle // when it is the current segment
	mark   mark    // at or before its first record
	to     uint64  // index after its last record
}

// Snapshot syncs, and reads up to max and at most 1,024 records from index from
// on. Those that were rotated away are left out.
func (l *Log) Snapshot(from uint64, most int) ([]ddf.AuditRecord, error) {
	if most <= 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "max is %d; ask for at least one record", most)
	}

	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		return nil, gpuerr.New(gpuerr.Closed, "the audit log is closed")
	}

	_ = l.waitLocked() // records on disk can be read even if a write fails
	from = max(from, l.segments[0].first)
	spans := l.spansLocked(from, uint64(min(most, maxSnapshot)))
	l.mu.Unlock()

	var records []ddf.AuditRecord
	var err error
	for _, s := range spans {
		if err == nil {
			records, err = l.readSpan(records, s, from)
		}
		if s.file != nil {
			_ = l.release(s.file)
		}
	}

	if err != nil {
		return nil, err
	}

	return records, nil
}

// spansLocked says where count records from index from on are. The current file
// among them must be released.
//
// +checklocks:l.mu
func (l *Log) spansLocked(from, count uint64) (spans []span) {
	end := l.durable.size
	if from >= end {
		return nil
	}

	to := from + min(count, end-from)
	for i, s := range l.segments {
		if s.number > l.durable.segment || s.first >= to {
			break
		}
		until := to
		if i+1 < len(l.segments) {
			until = min(to, l.segments[i+1].first)
		}
		if until <= from {
			continue
		}
		after := sort.Search(len(s.marks), func(i int) bool { return s.marks[i].index > from })
		sp := span{number: s.number, mark: s.marks[max(after-1, 0)], to: until}
		if s.number == l.durable.segment {
			sp.file = l.file
			l.file.users++
		}
		spans = append(spans, sp)
	}

	return spans
}

// readSpan appends the records of s from index from on.
func (l *Log) readSpan(records []ddf.AuditRecord, s span, from uint64) ([]ddf.AuditRecord, error) {
	var in io.ReaderAt = s.file
	if s.file == nil {
		f, err := l.store.open(s.number)
		if errors.Is(err, fs.ErrNotExist) {
			return records, nil // removed since
		}
		if err != nil {
			return nil, readFailed(err)
		}
		defer f.Close()
		in = f
	}

	scan := newScannerAt(io.NewSectionReader(in, s.mark.off, 1<<62), s.mark)
	for scan.at.size < s.to {
		r, err := scan.next()
		if err == io.EOF || errors.Is(err, errTorn) {
			return nil, scan.damage("it was cut off")
		}
		if err != nil {
			return nil, err
		}
		if r.Index >= from {
			records = append(records, r)
		}
	}

	return records, nil
}
