package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"capgpu/internal/crashpoint"
)

// file is the part of *os.File that Log uses.
type file interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	Truncate(size int64) error
	Close() error
}

// handle is a file that is closed after its last use.
type handle struct {
	file
	users int // guarded by Log.mu
}

// currentFile is the one that runCommit writes. Only it exchanges it.
func (l *Log) currentFile() *handle {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file
}

// release ends one use of h.
func (l *Log) release(h *handle) error {
	l.mu.Lock()
	h.users--
	last := h.users == 0
	l.mu.Unlock()
	if last {
		return h.Close()
	}
	return nil
}

// store is the folder of a log, with the steps of a rotation in their order.
type store interface {
	probe() error               // whether link will work
	create() (file, error)      // the next segment: a new file with no name that counts, locked
	link(number uint64) error   // gives the current file its name as a full segment, too
	sync() error                // brings names to disk
	replace() error             // makes what create made the current file, instead of the old one
	remove(number uint64) error // of a full segment
	discard() error             // what create made
	open(number uint64) (*os.File, error)
}

// rotate begins the segment of b. The name of the log leads to a whole file with a whole
// header at any time, and so after a crash between any two steps: before replace the old file
// is current, and may have its second name already; after it the new one is.
func (l *Log) rotate(b batch) error {
	l.mu.Lock()
	old, full := l.file, l.durable
	l.mu.Unlock()
	if l.ragged {
		if err := old.Truncate(full.off); err != nil {
			return err
		}
		l.ragged = false
	}

	// All records are on disk, but truncated bytes might come back.
	if err := old.Sync(); err != nil {
		return err
	}

	next, err := l.store.create()
	if err != nil {
		return err
	}
	if err := l.exchange(next, b.header, full.segment); err != nil {
		return errors.Join(err, next.Close(), l.store.discard())
	}

	l.mu.Lock()
	l.file, l.durable = &handle{file: next, users: 1}, b.from
	l.mu.Unlock()
	crashpoint.Here("audit.rotate.replaced")
	l.unsynced = true
	_ = l.release(old) // synced; the last reader closes it
	return nil
}

func (l *Log) exchange(next file, header []byte, full uint64) error {
	if _, err := next.WriteAt(header, 0); err != nil {
		return err
	}
	if err := next.Sync(); err != nil {
		return err
	}

	crashpoint.Here("audit.rotate.created")
	if err := l.store.link(full); err != nil {
		return err
	}
	if err := l.store.sync(); err != nil {
		return err
	}

	crashpoint.Here("audit.rotate.linked")
	return l.store.replace()
}

// removeOld removes the segments that a record on disk says were removed. It tries again
// after the next commit if it cannot remove one now.
func (l *Log) removeOld() {
	for {
		l.mu.Lock()
		oldest, noted := l.segments[0].number, l.durable.noted
		l.mu.Unlock()
		if oldest > noted {
			return
		}
		// One after the other on disk, too, so that a crash leaves no gap.
		if err := l.store.remove(oldest); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
		crashpoint.Here("audit.remove.removed")
		if l.store.sync() != nil {
			return
		}
		l.mu.Lock()
		l.segments = l.segments[1:]
		l.mu.Unlock()
	}
}

// dirStore is the store of a log at a path.
type dirStore struct{ path string }

func (d dirStore) nextPath() string { return d.path + ".next" }

func (d dirStore) probe() error {
	err := d.discard()
	if err == nil {
		err = os.Link(d.path, d.nextPath())
	}
	if err != nil {
		return fmt.Errorf("the log needs a folder where it can make hard links: %w", err)
	}
	return d.discard()
}

func (d dirStore) create() (file, error) {
	if err := d.discard(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(d.nextPath(), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (d dirStore) link(number uint64) error {
	name := segmentPath(d.path, number)
	err := os.Link(d.path, name)
	if errors.Is(err, fs.ErrExist) && sameFile(d.path, name) { // a rotation failed after this step
		return nil
	}
	return err
}

func (d dirStore) sync() error {
	dir, err := os.Open(filepath.Dir(d.path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (d dirStore) replace() error { return os.Rename(d.nextPath(), d.path) }

func (d dirStore) remove(number uint64) error { return os.Remove(segmentPath(d.path, number)) }

func (d dirStore) discard() error {
	if err := os.Remove(d.nextPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d dirStore) open(number uint64) (*os.File, error) { return os.Open(segmentPath(d.path, number)) }

func lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

func sameFile(a, b string) bool {
	stA, errA := os.Stat(a)
	stB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(stA, stB)
}
