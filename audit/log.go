package audit

import (
	"fmt"
	"sync"
	"time"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

const (
	// DefaultMaxBytes bounds a segment when Options says nothing.
	DefaultMaxBytes = 64 << 20
	// DefaultKeep is how many full segments device-manager keeps when its policy
	// says nothing: with the current one about 1 GiB.
	DefaultKeep = 16
	// MinMaxBytes is room for a segment's header, a note of removed segments, and a record.
	MinMaxBytes = 8 << 10
	// maxPendingBytes bounds what waits to be written; beyond it Append waits.
	maxPendingBytes = 1 << 20
	// maxSnapshot is the most records one Snapshot returns.
	maxSnapshot = 1024
	// markEvery is how many records apart the places are that Snapshot seeks to.
	markEvery = 256
)

// Options of a log.
type Options struct {
	// GroupFsync is how long a record may wait for others to share its fsync. Zero writes at
	// once; records that come during an fsync share the next one.
	GroupFsync time.Duration
	// MaxBytes bounds a segment: the record that would go beyond it begins the
	// next one. Zero is DefaultMaxBytes; less than MinMaxBytes is MinMaxBytes.
	MaxBytes uint64
	// Keep is how many full segments stay beside the current one; when there are
	// more, the oldest are removed. Zero keeps all.
	Keep int
}

// Log is an open audit log. All methods may be called from any goroutine.
type Log struct {
	store store
	opts  Options
	kick  chan struct{} // there is something to write
	rush  chan struct{} // and a caller waits for it
	done  chan struct{} // closed when runCommit has ended

	// Only runCommit uses these.
	ragged   bool // the file may be longer than durable
	unsynced bool // the folder may not be on disk as it is

	mu sync.Mutex
	// +checklocks:mu
	changed *sync.Cond // durable, failures or pending changed
	// +checklocks:mu
	file *handle // of the segment that durable is in
	// +checklocks:mu
	end position // after the last record that was appended
	// +checklocks:mu
	durable position // after the last record on disk
	// +checklocks:mu
	pending []batch // follows the batch that is being written
	// +checklocks:mu
	pendingBytes int
	// +checklocks:mu
	segments []segment // oldest first; end is in the last
	// +checklocks:mu
	failures uint64 // commits that failed
	// +checklocks:mu
	failure error // of the last commit, nil when it succeeded
	// +checklocks:mu
	lastFailure error // of the last commit that failed
	// +checklocks:mu
	lost uint64 // records given up and not yet written of
	// +checklocks:mu
	lostWritten uint64 // of those, the number in the audit.lost record that is not yet on disk
	// +checklocks:mu
	closing bool
}

// segment is the log's knowledge of one of its files.
type segment struct {
	number uint64
	first  uint64   // index of its first record
	root   [32]byte // over all records before that
	marks  []mark   // its first record and every markEvery-th
}

// mark is where a record's frame begins, and the chain before it.
type mark struct {
	index uint64
	off   int64
	chain [chainBytes]byte
}

// batch is frames of one segment.
type batch struct {
	header []byte // when they are the first of their segment
	from   position
	frames []byte
	to     position
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Append adds a record and returns its index. It does not wait for the disk, except while
// more records come than the disk takes, and after a write that failed. It answers
// gpuerr.Invalid for texts that are too long, and gpuerr.IO when the disk refuses.
func (l *Log) Append(kind, tenant, detail string) (uint64, error) {
	if err := checkText(kind, tenant, detail); err != nil {
		return 0, err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	for l.pendingBytes > maxPendingBytes && !l.closing {
		l.hurryLocked()
		l.changed.Wait()
	}

	if l.closing {
		return 0, gpuerr.New(gpuerr.Closed, "the audit log is closed")
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
	if uint64(l.end.off+frameBytes(kind, tenant, detail)) > l.opts.MaxBytes {
		l.beginSegmentLocked()
	}
	return l.putLocked(kind, tenant, detail)
}

// beginSegmentLocked ends the current segment: later records go to the next one. commit makes
// it on disk when its turn has come.
//
// +checklocks:l.mu
func (l *Log) beginSegmentLocked() {
	at, header := l.end.follow()
	l.addSegmentLocked(at)
	l.pending = append(l.pending, batch{header: header, from: at, to: at})
	l.pendingBytes += len(header)
	l.end = at
	l.noteRemovalLocked()
}

// noteRemovalLocked queues a record of the full segments that are too many. They
// are removed when it is on disk.
//
// +checklocks:l.mu
func (l *Log) noteRemovalLocked() {
	tooMany := len(l.segments) - 1 - l.opts.Keep
	if l.opts.Keep == 0 || tooMany <= 0 {
		return
	}

	after := l.segments[tooMany]
	last := after.number - 1
	if last <= l.end.noted {
		return
	}

	from := l.segments[0]
	for _, s := range l.segments[:tooMany] {
		if from = s; s.number > l.end.noted { // those before could not be removed yet
			break
		}
	}

	l.end.noted = last
	l.putLocked(removedKind, "", fmt.Sprintf("segments=%d-%d records=%d-%d head=%d:%x",
		from.number, last, from.first, after.first-1, after.first, after.root))
}

// putLocked queues a record for the current segment.
//
// +checklocks:l.mu
func (l *Log) putLocked(kind, tenant, detail string) uint64 {
	index := l.end.size
	l.noteMarkLocked(l.end)
	if len(l.pending) == 0 {
		l.pending = append(l.pending, batch{from: l.end})
	}
	b := &l.pending[len(l.pending)-1]
	before := len(b.frames)
	b.frames = appendFrame(b.frames, &l.end, ddf.AuditRecord{Index: index, Time: time.Now(), Kind: kind, Tenant: tenant, Detail: detail})
	l.pendingBytes += len(b.frames) - before
	b.to = l.end
	return index
}

// noteMarkLocked makes p a place to seek to, if it is time for one.
//
// +checklocks:l.mu
func (l *Log) noteMarkLocked(p position) {
	if s := &l.segments[len(l.segments)-1]; p.size == s.first || p.size%markEvery == 0 {
		s.marks = append(s.marks, mark{index: p.size, off: p.off, chain: p.chain})
	}
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

// Sync returns when every record appended before is on disk. It is gpuerr.IO when records
// were given up and no audit.lost record counts them yet.
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
	if closeErr := l.release(l.currentFile()); err == nil && closeErr != nil {
		err = gpuerr.New(gpuerr.IO, "close the audit log: %v", closeErr)
	}

	return err
}
