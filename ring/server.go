package ring

import (
	"context"
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

	work       receiver // woken when there is something to take
	clientWork sender   // its other end, the client's
	done       sender   // wakes the client
	clientDone receiver // its other end, the client's

	ending atomic.Bool // Close waits for a spinning SpinTake
	gone   atomic.Bool // an access of the mapping faulted: see guard

	takeMu sync.Mutex
	// +checklocks:takeMu
	taken uint64 // entries copied out
	// +checklocks:takeMu
	consumed uint64 // of those, entries whose slot and arena bytes were given back
	// +checklocks:takeMu
	seenTail uint64 // sqTail as last read and checked
	// +checklocks:takeMu
	seenLast uint64 // sqLast as read behind it
	// +checklocks:takeMu
	seenHead uint64 // cqHead as last read and checked
	// +checklocks:takeMu
	err error // set once failed or closed
	// +checklocks:takeMu
	handedOut bool
	// +checklocks:takeMu
	last int // entries that the last take found
	// +checklocks:takeMu
	watched bool // somebody looks at the ring in place of WaitWork: see Watch

	doneMu sync.Mutex
	// +checklocks:doneMu
	completed uint64
	// +checklocks:doneMu
	published uint64 // completions the client may have seen; counted before it may
	// +checklocks:doneMu
	first uint64 // word of the first that is not published, which is not stored yet
	// +checklocks:doneMu
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
// nothing else, so that it learns when the client is gone (WaitWork: Disconnected).
// It succeeds once, and fails once the ring has ended.
func (s *Server) HandOut() (ring, sq, cq int, err error) {
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	switch {
	case s.err != nil:
		return -1, -1, -1, s.err
	case s.mem == nil:
		return -1, -1, -1, gpuerr.New(gpuerr.Unimplemented, "a local ring has no descriptors")
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

// Published is how many entries the client has published that were not taken yet,
// with or without room for their completions. It is 0 once the ring has ended, or
// when the client has broken the rules, which the next TakeMany says.
func (s *Server) Published() int {
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), nil)
	if s.err != nil {
		return 0
	}
	if s.lookAtTailLocked() != nil {
		return 0
	}
	return int(s.seenTail - s.taken)
}

// Marks are positions: up to where entries were taken from the ring, up to where the
// client has published some, and up to where it has collected completions. Whoever reads
// the last two at once knows nothing of their order. What the client writes is bounded,
// and else its own loss. Once the ring has ended all three are how far it came.
func (s *Server) Marks() (taken, published, collected uint64) {
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), nil)
	taken, published, collected = s.taken, s.taken, s.seenHead
	if s.err != nil || s.gone.Load() {
		return taken, published, collected
	}
	if tail := s.view.sqTail.Load(); tail-s.taken <= uint64(s.Entries) {
		published = tail
	}
	if head := s.view.cqHead.Load(); head-s.seenHead <= uint64(s.completions) {
		collected = head
	}
	return taken, published, collected
}

// lookLocked says whether TakeMany has something (awake), or what to wait for. It
// reads a word of the client's only when what it knows is used up.
//
// +checklocks:s.takeMu
func (s *Server) lookLocked() (want uint32, err error) {
	if s.err == nil && s.gone.Load() {
		s.err = errGone
	}
	if s.err != nil {
		return awake, s.err
	}
	if s.taken == s.seenTail {
		if err := s.lookAtTailLocked(); err != nil {
			return awake, err
		}
		if s.taken == s.seenTail {
			return waitEntries, nil
		}
	}
	if s.taken-s.seenHead >= uint64(s.completions) {
		if err := s.lookAtHeadLocked(); err != nil {
			return awake, err
		}
		if s.taken-s.seenHead >= uint64(s.completions) {
			return waitCompletions, nil
		}
	}
	return awake, nil
}

// lookAtTailLocked learns how many entries the client has published.
//
// +checklocks:s.takeMu
func (s *Server) lookAtTailLocked() error {
	tail := s.view.sqTail.Load()
	// One that went back is far ahead in unsigned arithmetic.
	if tail-s.seenTail > uint64(s.Entries) || tail-s.consumed > uint64(s.Entries) {
		return s.failLocked(errTail)
	}
	s.seenTail, s.seenLast = tail, atomic.LoadUint64(s.view.sqLast)
	return nil
}

// lookAtHeadLocked learns how many completions the client has taken.
//
// +checklocks:s.takeMu
func (s *Server) lookAtHeadLocked() error {
	head := s.view.cqHead.Load()
	s.doneMu.Lock() // after that: who takes what is being published is not wrong
	published := s.published
	s.doneMu.Unlock()
	return s.headLocked(head, published)
}

// headLocked checks a cqHead that was read before so many completions were published.
//
// +checklocks:s.takeMu
func (s *Server) headLocked(head, published uint64) error {
	if head-s.seenHead > uint64(s.completions) || head > published {
		return s.failLocked(errHead)
	}
	s.seenHead = head
	return nil
}

// failLocked ends the ring because of what the client wrote.
//
// +checklocks:s.takeMu
func (s *Server) failLocked(err error) error {
	s.err = err
	s.view.state.CompareAndSwap(0, uint32(gpuerr.Protocol))
	s.done.Signal()
	return err
}

// Flush publishes what was completed, and wakes the client if it asked.
func (s *Server) Flush() { s.Publish(nil) }

// publish reports whether the client asked to be woken.
func (s *Server) publish(cs []Completion, oks []uint64) bool {
	s.doneMu.Lock()
	defer s.doneMu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), nil)
	if s.closed || s.gone.Load() {
		return false
	}
	s.completeLocked(cs)
	s.completeOKLocked(oks)
	return s.publishLocked() && s.clientAsksLocked()
}

// clientAsksLocked reports whether the client sleeps until completions come, and takes the
// question away.
//
// +checklocks:s.doneMu
func (s *Server) clientAsksLocked() bool {
	return s.view.cqWait.Load() == waitEntries && s.view.cqWait.CompareAndSwap(waitEntries, awake)
}

// publishLocked reports whether there was anything to publish.
//
// +checklocks:s.doneMu
func (s *Server) publishLocked() bool {
	if s.published == s.completed {
		return false
	}
	first := s.view.word(s.published)
	s.published = s.completed
	atomic.SwapUint64(first, s.first) // Swap: see view
	return true
}

// WaitWork sleeps until TakeMany has something. It returns ctx's error when ctx ends
// first, what TakeMany would when the ring has ended, and gpuerr.Disconnected when
// there is nothing to take and the client has closed its end of the pipe.
func (s *Server) WaitWork(ctx context.Context) error {
	for {
		ready, err := s.arm()
		if ready || err != nil {
			return err
		}
		err = s.work.Wait(ctx)
		if ended := s.disarm(); ended != nil {
			return ended
		}
		if err != nil {
			return err
		}
	}
}

// arm asks for a wake unless there is work: the flag is set before the queue is
// looked at for the last time.
func (s *Server) arm() (ready bool, err error) {
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), &err)
	want, err := s.lookLocked()
	if err == nil && want != awake {
		s.work.Drain()
	}
	if s.watched && err == nil && want == waitEntries {
		return false, nil
	}
	s.watched = false
	for err == nil && want != awake {
		armed := want
		s.view.sqWait.Swap(armed)
		if want, err = s.lookLocked(); err == nil && want == armed {
			return false, nil
		}
	}
	if s.err == nil { // else the mapping may be gone
		s.view.sqWait.Store(awake)
	}
	return err == nil, err
}

// disarm returns why the ring has ended, if it has.
func (s *Server) disarm() (err error) {
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), &err)
	if s.err == nil {
		s.view.sqWait.Store(awake)
	}
	return s.err
}

// Close ends the ring: what was completed is published, the client is told the
// code and woken, and everything of this side is released. Idempotent.
func (s *Server) Close(code gpuerr.Code) {
	if !code.Valid() {
		code = gpuerr.Closed
	}
	s.ending.Store(true)
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	s.doneMu.Lock()
	defer s.doneMu.Unlock()
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
// +checklocks:s.doneMu
func (s *Server) tellLocked(code gpuerr.Code) {
	defer s.guard(debug.SetPanicOnFault(true), nil)
	if !s.gone.Load() {
		s.publishLocked()
		s.view.state.CompareAndSwap(0, uint32(code))
	}
}

// guard is deferred by whatever touches the mapping, with what SetPanicOnFault
// returned. The pages are the client's to punch out at any time, and when the host
// has no memory to put in their place the access faults. That ends this ring, not
// the process: TakeMany and WaitWork say so from then on. err may be nil.
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
	if s.mem != nil { // else it is a local ring's
		shm.Unmap(s.mapping)
		s.mem.Close()
	}
	s.mapping = nil
}

var (
	errTail  = gpuerr.New(gpuerr.Protocol, "sqTail went back, or ahead by more than the ring has entries; the queue is closed")
	errPlace = gpuerr.New(gpuerr.Protocol, "the word of a position names another position, no kept slot there is, or has a bit that must be zero; the queue is closed")
	errGone  = gpuerr.New(gpuerr.Protocol, "memory of the ring is gone; the queue is closed")
	errHead  = gpuerr.New(gpuerr.Protocol, "cqHead went back, or beyond the completions there are; the queue is closed")
)
