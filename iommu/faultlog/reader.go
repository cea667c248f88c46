package faultlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// Options of a Reader.
type Options struct {
	// Path is the log to follow; empty: Path.
	Path string
	// Proc is the folder with the kernel's interrupts; empty: /proc.
	Proc string
}

// Reader follows the kernel's log and passes faults to its sink, one after the other.
//
//	Run ──► wait ──► drain ──► sink
//	Sync ─► visit ─► drain ──► sink
type Reader struct {
	log      source
	handlers *visitor // nil in tests: the log is then complete
	sink     func(Fault)

	mu sync.Mutex // held across drain and the sink: when it is free, every read report has been delivered
	// +checklocks:mu
	buf []byte
	// +checklocks:mu
	next uint64 // sequence number of the record that should come next
	// +checklocks:mu
	started bool // next is known
	// +checklocks:mu
	lost uint64 // reports, not delivered yet
	// +checklocks:mu
	overrun bool // some of them were overwritten
}

// source is a log; kmsg is the real one.
type source interface {
	read(b []byte) (int, error)
	wait(ctx context.Context) error
	Close() error
}

// Open begins at the end of the log. The sink must return soon, and must not call
// the Reader.
func Open(sink func(Fault), o Options) (*Reader, error) {
	if o.Path == "" {
		o.Path = Path
	}
	if o.Proc == "" {
		o.Proc = "/proc"
	}

	handlers, err := newVisitor(o.Proc)
	if err != nil {
		return nil, err
	}

	log, err := openKmsg(o.Path)
	if err != nil {
		return nil, errors.Join(err, handlers.Close())
	}

	r := newReader(log, sink)
	r.handlers = handlers
	return r, nil
}

func newReader(log source, sink func(Fault)) *Reader {
	return &Reader{log: log, sink: sink, buf: make([]byte, recordBytes)}
}

// Run passes faults to the sink until ctx ends (then it returns ctx's error), Close
// (gpuerr.Closed), or the log fails.
func (r *Reader) Run(ctx context.Context) error {
	for {
		if err := r.drain(); err != nil {
			return err
		}
		if err := r.log.wait(ctx); err != nil {
			return r.failed(err)
		}
	}
}

// Sync returns when the sink has all faults that the IOMMU has reported by now, also those
// that the kernel had not printed yet. It waits for nothing else.
func (r *Reader) Sync() error {
	if r.handlers != nil {
		if err := r.handlers.visit(); err != nil {
			return r.failed(err)
		}
	}
	return r.drain()
}

// drain passes all faults that the kernel has printed so far to the sink.
func (r *Reader) drain() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		n, err := r.log.read(r.buf)
		switch err {
		case nil:
			if f, ok := r.takeLocked(r.buf[:n]); ok {
				r.sink(f)
			}
		case unix.EAGAIN:
			return nil
		case unix.EINTR:
		case unix.EPIPE: // overrun: the next read continues with the rest, and its number shows how much is missing
			if !r.started {
				r.lost++ // at least
				r.overrun = true
			}
		default:
			return r.failed(err)
		}
	}
}

// takeLocked reads one record. It returns true when there is a fault to pass on.
//
// +checklocks:r.mu
func (r *Reader) takeLocked(b []byte) (f Fault, ok bool) {
	rec, ok := parseRecord(b)
	if !ok {
		return Fault{}, false
	}

	before := r.lost
	if r.started && rec.seq > r.next {
		r.lost += rec.seq - r.next
		r.overrun = true
	}

	r.started, r.next = true, rec.seq+1
	if rec.facility == 0 {
		if n, ok := parseSuppressed(rec.text); ok {
			r.lost += n
		} else {
			f, ok = parseLine(rec.text)
			if ok {
				f.Micros = rec.micros
			}
		}
	}

	if f.Address == "" && r.lost == before {
		return Fault{}, false
	}

	f.Lost, f.Overrun = r.lost, r.overrun
	r.lost, r.overrun = 0, false
	return f, true
}

func (r *Reader) failed(err error) error {
	switch {
	case errors.Is(err, os.ErrClosed):
		return gpuerr.New(gpuerr.Closed, "the reader of IOMMU faults is closed")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("read the kernel's log: %w", err)
}

// Close ends a Run that waits. Idempotent.
func (r *Reader) Close() error {
	if r.handlers == nil {
		return r.log.Close()
	}
	return errors.Join(r.handlers.Close(), r.log.Close())
}
