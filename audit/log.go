package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

const (
	// DefaultMaxBytes bounds the file when Options says nothing.
	DefaultMaxBytes = 1 << 30
	// maxPendingBytes bounds what waits to be written; beyond it Append waits.
	maxPendingBytes = 1 << 20
	// maxSnapshot is the most records one Snapshot returns.
	maxSnapshot = 1024
	// markEvery is how many records apart the places are that Snapshot seeks to.
	markEvery = 256
)

// Options of a log.
type Options struct {
	// GroupFsync is how long a record may wait for others to share its fsync. Zero
	// writes at once; those that come meanwhile share the next one.
	GroupFsync time.Duration
	// MaxBytes bounds the file; Append then answers gpuerr.Quota. Zero is DefaultMaxBytes.
	MaxBytes uint64
}

// file is what Log needs of *os.File.
type file interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	Truncate(size int64) error
	Close() error
}

// Log is an open audit log. All methods may be called from any goroutine.
type Log struct {
	file file
	opts Options
	kick chan struct{} // there is something to write
	rush chan struct{} // and somebody waits for it
	done chan struct{} // closed when runCommit has ended

	ragged bool // the file may go on after durable; only runCommit uses it

	mu sync.Mutex
	// +checklocks:mu
	changed *sync.Cond // durable, failures or pending changed
	// +checklocks:mu
	end position // after the last record that was appended
	// +checklocks:mu
	durable position // after the last record on disk
	// +checklocks:mu
	pending []byte // frames after those being written
	// +checklocks:mu
	marks []mark // every markEvery-th record
	// +checklocks:mu
	failures uint64 // commits that failed
	// +checklocks:mu
	failure error // of the last commit, nil when it succeeded
	// +checklocks:mu
	lastFailure error // of the last commit that failed
	// +checklocks:mu
	lost uint64 // records given up and not yet written of
	// +checklocks:mu
	lostWritten uint64 // of those, how many the audit.lost record not yet on disk tells
	// +checklocks:mu
	closing bool
}

// mark is where a record's frame begins, and the chain before it.
type mark struct {
	index uint64
	off   int64
	chain [chainBytes]byte
}

// Open opens a log or begins one, checking all of it. It fails with a *Damage if
// a record is not as it was written, and with gpuerr.Busy while another process
// has it open.
func Open(path string, o Options) (*Log, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "open the audit log: %v", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, gpuerr.New(gpuerr.Busy, "the audit log %s is in use by another process: %v", path, err)
	}
	if dir, err := os.Open(filepath.Dir(path)); err == nil { // a new name must survive a crash, too
		err = errors.Join(dir.Sync(), dir.Close())
		if err != nil {
			f.Close()
			return nil, gpuerr.New(gpuerr.IO, "sync the folder of the audit log: %v", err)
		}
	}
	l, err := open(f, io.NewSectionReader(f, 0, 1<<62), o)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("audit log %s: %w", path, err)
	}
	return l, nil
}

// open takes over f, whose content in reads, if it succeeds.
func open(f file, in io.Reader, o Options) (*Log, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	l := &Log{file: f, opts: o, kick: make(chan struct{}, 1), rush: make(chan struct{}, 1), done: make(chan struct{})}
	l.changed = sync.NewCond(&l.mu)
	s := newScanner(in)
	l.mu.Lock()
	err := l.loadLocked(s)
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	tornAt := s.at.off
	if err := mend(f, s); err != nil {
		return nil, gpuerr.New(gpuerr.IO, "prepare the file: %v", err)
	}
	l.durable, l.end = s.at, s.at
	go l.runCommit()
	if s.tornBytes > 0 {
		detail := fmt.Sprintf("cut off %d bytes at %d of a write that did not finish, SHA-256 %x", s.tornBytes, tornAt, s.tornSum)
		l.mu.Lock()
		l.appendLocked("audit.torn", "", detail) // also when the file is full
		l.mu.Unlock()
		poke(l.kick)
	}
	return l, nil
}

// loadLocked reads everything up to the end, or up to a torn record.
//
// +checklocks:l.mu
func (l *Log) loadLocked(s *scanner) error {
	for {
		before := s.at
		_, err := s.next()
		if err == io.EOF || errors.Is(err, errTorn) {
			return nil
		}
		if err != nil {
			return err
		}
		if before.size == 0 {
			before = start()
		}
		l.noteMarkLocked(before)
	}
}

// mend takes what is torn off the file, and begins a new one.
func mend(f file, s *scanner) error {
	if s.tornBytes > 0 {
		if err := f.Truncate(s.at.off); err != nil {
			return err
		}
	}
	if !s.started {
		s.at = start()
		if _, err := f.WriteAt([]byte(header), 0); err != nil {
			return err
		}
	}
	return f.Sync()
}

// noteMarkLocked makes p a place to seek to, if it is time for one.
//
// +checklocks:l.mu
func (l *Log) noteMarkLocked(p position) {
	if p.size%markEvery == 0 {
		l.marks = append(l.marks, mark{index: p.size, off: p.off, chain: p.chain})
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Append adds a record and tells its index; it does not wait for the disk, except
// while more is coming than the disk takes, and after a write that failed.
// It answers gpuerr.Invalid for texts that are too long, gpuerr.Quota when the
// file is full, and gpuerr.IO when the disk refuses.
func (l *Log) Append(kind, tenant, detail string) (uint64, error) {
	if err := checkText(kind, tenant, detail); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.pending) > maxPendingBytes && !l.closing {
		l.hurryLocked()
		l.changed.Wait()
	}
	if l.closing {
		return 0, gpuerr.New(gpuerr.Closed, "the audit log is closed")
	}
	frameBytes := uint64(frameHeadBytes + fixedBytes + len(kind) + len(tenant) + len(detail) + chainBytes)
	if room := l.opts.MaxBytes - min(uint64(l.end.off), l.opts.MaxBytes); frameBytes > room {
		err := gpuerr.Refused("auditBytes", frameBytes, room)
		err.Msg = "the audit log is full; begin a new file"
		return 0, err
	}
	wasFailing := l.failure != nil
	if l.lost > 0 {
		l.appendLocked("audit.lost", "", fmt.Sprintf("%d records before this one could not be written", l.lost))
		l.lost, l.lostWritten = 0, l.lost
	}
	index := l.appendLocked(kind, tenant, detail)
	if wasFailing {
		if err := l.waitLocked(); err != nil {
			return 0, err
		}
		return index, nil
	}
	poke(l.kick)
	return index, nil
}

// appendLocked queues a record that was checked.
//
// +checklocks:l.mu
func (l *Log) appendLocked(kind, tenant, detail string) uint64 {
	index := l.end.size
	l.noteMarkLocked(l.end)
	l.pending = appendFrame(l.pending, &l.end, ddf.AuditRecord{Index: index, Time: time.Now(), Kind: kind, Tenant: tenant, Detail: detail})
	return index
}

func (l *Log) hurryLocked() {
	poke(l.rush)
	poke(l.kick)
}

// waitLocked waits until all that was appended is on disk, or a commit fails.
//
// +checklocks:l.mu
func (l *Log) waitLocked() error {
	target, failures := l.end.size, l.failures
	for l.failures == failures { // an index that was given up is used again: look at this first
		if l.durable.size >= target {
			return nil
		}
		l.hurryLocked()
		l.changed.Wait()
	}
	return l.lastFailure
}

// Sync returns when every record appended before is on disk. It is gpuerr.IO when
// records were given up that no audit.lost record tells of yet.
func (l *Log) Sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.waitLocked(); err != nil {
		return err
	}
	return l.failure
}

// Head syncs and commits to all records.
func (l *Log) Head() (ddf.AuditHead, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.waitLocked(); err != nil {
		return ddf.AuditHead{}, err
	}
	return l.durable.head(), nil
}

// Close syncs and closes. Appends fail from here on.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		<-l.done
		return nil
	}
	l.closing = true
	l.changed.Broadcast()
	err := l.waitLocked()
	if err == nil {
		err = l.failure
	}
	l.mu.Unlock()
	poke(l.kick)
	<-l.done
	if closeErr := l.file.Close(); err == nil && closeErr != nil {
		err = gpuerr.New(gpuerr.IO, "close the audit log: %v", closeErr)
	}
	return err
}

// Snapshot syncs, and reads up to max and at most 1,024 records from index from on.
func (l *Log) Snapshot(from uint64, max int) ([]ddf.AuditRecord, error) {
	if max <= 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "max is %d; ask for at least one record", max)
	}
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		return nil, gpuerr.New(gpuerr.Closed, "the audit log is closed")
	}
	_ = l.waitLocked() // what is on disk can be read whatever a write says
	end := l.durable
	if from >= end.size {
		l.mu.Unlock()
		return nil, nil
	}
	m := l.marks[from/markEvery]
	l.mu.Unlock()

	s := newScannerAt(io.NewSectionReader(l.file, m.off, end.off-m.off), m)
	var records []ddf.AuditRecord
	for to := min(end.size, from+uint64(min(max, maxSnapshot))); s.at.size < to; {
		r, err := s.next()
		if err != nil {
			return nil, err
		}
		if r.Index >= from {
			records = append(records, r)
		}
	}
	return records, nil
}
