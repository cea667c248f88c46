package ring

import (
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/shm"
)

// Server is the driver's end.
//
//	          peer breaks the rules
//	live ───────────────────────────► failed ──Close──► closed
//	  └──────────────Close──────────────────────────────►
type Server struct {
	layout
	mem     *shm.Memory // kept for Export; the client's ends are closed once it has them
	mapping []byte
	view    view

	work       Receiver // readable when there is something to take
	clientWork Sender   // its other end, the client's
	done       Sender   // wakes the client
	clientDone Receiver // its other end, the client's

	gone atomic.Bool // an access of the mapping faulted: see guard

	mu sync.Mutex
	// +checklocks:mu
	taken uint64 // entries copied out
	// +checklocks:mu
	seenTail uint64 // sqTail as last read and checked
	// +checklocks:mu
	seenHead uint64 // cqHead as last read and checked
	// +checklocks:mu
	completed uint64
	// +checklocks:mu
	published uint64 // completions that the client may have seen
	// +checklocks:mu
	first uint64 // word 1 of the first that is not published, which is not stored yet
	// +checklocks:mu
	err error // set once failed or closed
	// +checklocks:mu
	handedOut bool
	// +checklocks:mu
	hungUp bool // the client's end of the doorbell is closed
	// +checklocks:mu
	closed bool
}

// NewServer makes a ring.
func NewServer(cfg Config) (_ *Server, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Server{layout: layoutOf(cfg)}
	defer func() {
		if err != nil {
			s.releaseAll()
		}
	}()

	if s.mem, err = shm.Create("capgpu-ring", s.bytes); err != nil {
		return nil, err
	}
	if s.mapping, err = s.mem.Map(0, s.mem.Size(), true); err != nil {
		return nil, err
	}
	if s.view, err = viewOf(s.mapping, s.layout); err != nil {
		return nil, err
	}
	if s.clientWork, s.work, err = newPipe(); err != nil {
		return nil, err
	}
	if s.done, s.clientDone, err = newPipe(); err != nil {
		return nil, err
	}
	storeHeader(s.mapping, s.layout.header())
	return s, nil
}

// HandOut returns what the client gets, which the caller owns: the memory, the end
// of the submission pipe that wakes the driver, the end of the completion pipe that
// the client sleeps on. This side keeps the memory and its own ends of the pipes,
// nothing else, so that it learns when the client is gone (gpuerr.Disconnected).
// It succeeds once, and fails once the ring has ended.
func (s *Server) HandOut() (ring, sq, cq int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return -1, -1, -1, s.err
	case s.mem == nil:
		return -1, -1, -1, errNoDescriptors
	case s.handedOut:
		return -1, -1, -1, gpuerr.New(gpuerr.Invalid, "the descriptors of a ring are handed out once")
	}

	if ring, err = s.mem.DupFD(); err != nil {
		return -1, -1, -1, err
	}
	if sq, err = s.clientWork.DupFD(); err != nil {
		unix.Close(ring)
		return -1, -1, -1, err
	}
	if cq, err = s.clientDone.DupFD(); err != nil {
		unix.Close(ring)
		unix.Close(sq)
		return -1, -1, -1, err
	}
	s.handedOut = true
	s.clientWork.Close()
	s.clientDone.Close()
	return ring, sq, cq, nil
}

// Config is what the ring was made with.
func (s *Server) Config() Config { return s.layout.Config }

// Close ends the ring: what was completed is published, the client is told the
// code and woken, and everything of this side is released. Idempotent.
func (s *Server) Close(code gpuerr.Code) {
	if !code.Valid() {
		code = gpuerr.Closed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if s.err == nil {
		s.err = gpuerr.New(code, "the queue is closed")
	}
	s.tellLocked(code)
	s.done.Signal()
	s.releaseAll()
}

// tellLocked publishes what was completed and why the ring ends.
//
// +checklocks:s.mu
func (s *Server) tellLocked(code gpuerr.Code) {
	defer s.guard(debug.SetPanicOnFault(true), nil)
	if !s.gone.Load() {
		s.publishLocked()
		s.view.state.CompareAndSwap(0, uint32(code))
	}
}

// failLocked ends the ring because of what the client wrote.
//
// +checklocks:s.mu
func (s *Server) failLocked(err error) error {
	s.err = err
	s.view.state.CompareAndSwap(0, uint32(gpuerr.Protocol))
	s.done.Signal()
	return err
}

// guard is deferred by every call that touches the mapping, with what SetPanicOnFault
// returned. The pages are the client's to punch out at any time, and when the host
// has no memory to put in their place the access faults. That ends this ring, not
// the process: TakeMany and Arm say so from then on. err may be nil.
func (s *Server) guard(panicOnFault bool, err *error) {
	debug.SetPanicOnFault(panicOnFault)
	p := recover()
	if p == nil {
		return
	}
	if !faultIn(p, s.mapping) {
		panic(p) // a bug of ours
	}
	s.gone.Store(true)
	if err != nil {
		*err = errGone
	}
}

// releaseAll releases what there is, also of a server half made.
func (s *Server) releaseAll() {
	if s.work != nil {
		s.work.Close() // wakes WaitWork
	}
	if s.done != nil {
		s.done.Close()
	}
	if s.clientWork != nil { // else it was restored
		s.clientWork.Close()
	}
	if s.clientDone != nil {
		s.clientDone.Close()
	}
	s.view = view{}
	if s.mem != nil { // else the memory is the caller's of NewOver
		shm.Unmap(s.mapping)
		s.mem.Close()
	}
	s.mapping = nil
}

var (
	errTail          = gpuerr.New(gpuerr.Protocol, "sqTail went back, or ahead by more than the ring has entries; the queue is closed")
	errHead          = gpuerr.New(gpuerr.Protocol, "cqHead went back, or beyond the completions there are; the queue is closed")
	errGone          = gpuerr.New(gpuerr.Protocol, "memory of the ring is gone; the queue is closed")
	errClientGone    = gpuerr.New(gpuerr.Disconnected, "the client has closed its end of the ring")
	errNoDescriptors = gpuerr.New(gpuerr.Unimplemented, "a ring within one process has no descriptors")
)
