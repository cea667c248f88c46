package control

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// Serving is Serve that can be paused between two messages, and resumed here or in
// another process that also has the socket.
//
//	reading ──Pause──► stopping ──(what was read is answered)──► paused ──Resume──► reading
//
// Messages that come meanwhile stay in the socket. Pause does not wait for requests
// that may wait for ever: it returns them, as Asked, and they are not answered
// until Resume.
type Serving struct{ e *engine }

// Asked is an unanswered request.
type Asked struct {
	Type MsgType
	Seq  uint64
	Body []byte
	For  time.Duration // the time that it has been waiting
}

// NewServing is the first step of Serve; Run is the second. Requests that another
// process has received before are served first.
func NewServing(ctx context.Context, c *Conn, h Handler, asked ...Asked) *Serving {
	e := newEngine(ctx, c, h, nil)
	e.early = asked
	return &Serving{e}
}

// Run serves like Serve.
func (s *Serving) Run() error { return s.e.run() }

// FD is a duplicate of the socket, which the caller owns.
func (s *Serving) FD() (fd int, err error) {
	fd = -1
	if s.e.conn.raw.Control(func(c uintptr) { fd, err = unix.FcntlInt(c, unix.F_DUPFD_CLOEXEC, 0) }) != nil {
		return -1, s.e.conn.closedError()
	}
	if err != nil {
		return -1, gpuerr.New(gpuerr.IO, "duplicate a socket: %v", err)
	}
	return fd, nil
}

// pause is one stop of an engine.
type pause struct {
	mayWait func(MsgType) bool
	resumed chan struct{} // closed when it is over
	moved   chan struct{} // buffer of one: something was answered, or the reader has stopped
	reader  bool          // the reader has stopped; guarded by engine.mu
}

// ErrEnding means that a Serving cannot be paused because it is ending by itself.
var ErrEnding = gpuerr.New(gpuerr.Busy, "a session is ending")

// pausePatience limits how long a peer may leave replies unread, so that there is
// no room for more, while its serving is to be paused and all others wait for it.
// The actual time is once or twice this.
const pausePatience = time.Second

// Pause stops reading. It returns when every request that was read is answered,
// except those in mayWait, which it returns. When ctx ends first, nothing is
// stopped. The error is ErrEnding when the serving ends. A peer that does not read
// its replies is dropped.
func (s *Serving) Pause(ctx context.Context, mayWait func(MsgType) bool) ([]Asked, error) {
	e := s.e
	p := &pause{mayWait: mayWait, resumed: make(chan struct{}), moved: make(chan struct{}, 1)}
	e.mu.Lock()
	if e.pause != nil {
		e.mu.Unlock()
		return nil, gpuerr.New(gpuerr.Busy, "a socket is paused already")
	}

	e.pause = p
	e.conn.interruptRead()
	e.mu.Unlock()
	patience := time.NewTicker(pausePatience)
	defer patience.Stop()

	unread := false
	for {
		if asked, still := e.still(p); still {
			return asked, nil
		}
		select {
		case <-p.moved:
		case <-patience.C:
			was := unread
			if unread = e.unread(); was && unread {
				e.cancel(gpuerr.New(gpuerr.Disconnected, "the peer does not read its replies, for which all others wait, and was dropped"))
				e.conn.Close()
			}
		case <-e.ctx.Done():
			s.Resume()
			return nil, ErrEnding
		case <-ctx.Done():
			s.Resume()
			return nil, gpuerr.New(gpuerr.Busy, "requests are being answered that take long; try again")
		}
	}
}

// unread reports whether some replies are made and not read.
func (e *engine) unread() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count > len(e.seqs)
}

// still reports whether nothing moves, and the waiting requests.
func (e *engine) still(p *pause) (asked []Asked, still bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !p.reader || e.count != len(e.seqs) || e.ctx.Err() != nil {
		return nil, false
	}
	for seq, q := range e.seqs {
		if !p.mayWait(q.Type) {
			return nil, false
		}
		asked = append(asked, Asked{Type: q.Type, Seq: seq, Body: q.Body, For: time.Since(q.since)})
	}
	return asked, true
}

// Resume ends a Pause.
func (s *Serving) Resume() {
	e := s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pause == nil {
		return
	}
	close(e.pause.resumed)
	e.pause = nil
	e.conn.resumeRead()
	if e.ctx.Err() != nil { // this pause may have caused the interruption
		e.conn.interruptRead()
	}
}

// movedLocked reports to a pause that something has happened.
//
// +checklocks:e.mu
func (e *engine) movedLocked() {
	if e.pause != nil {
		select {
		case e.pause.moved <- struct{}{}:
		default:
		}
	}
}

// awaitResume blocks the reader while the engine is paused.
func (e *engine) awaitResume() {
	for {
		e.mu.Lock()
		p := e.pause
		if p == nil {
			e.mu.Unlock()
			return
		}
		p.reader = true
		e.movedLocked()
		e.mu.Unlock()
		select {
		case <-p.resumed:
		case <-e.ctx.Done():
			return
		}
	}
}

// interrupted reports whether the reader was woken for a pause, or by one that is
// over.
func (e *engine) interrupted(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) && e.ctx.Err() == nil
}

// beginReply takes the right to answer a request. While the engine is paused,
// requests that may wait block here.
func (e *engine) beginReply(t MsgType, seq uint64) {
	for {
		e.mu.Lock()
		p := e.pause
		if p == nil || !p.mayWait(t) || e.ctx.Err() != nil {
			delete(e.seqs, seq)
			e.mu.Unlock()
			return
		}
		e.movedLocked()
		e.mu.Unlock()
		select {
		case <-p.resumed:
		case <-e.ctx.Done():
		}
	}
}

// request is a request without a reply.
type request struct {
	Type  MsgType
	Body  []byte
	since time.Time
}

// takeEarly serves the requests that another process has received.
func (e *engine) takeEarly() error {
	for _, a := range e.early {
		if err := e.accept(&Message{Type: a.Type, Seq: a.Seq, Body: a.Body}); err != nil {
			return err
		}
	}
	e.early = nil
	return nil
}
