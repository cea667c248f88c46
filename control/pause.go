package control

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// Serving is Serve that can be stopped between two messages, and gone on with: here, or in
// another process that has the socket too.
//
//	reading ──Pause──► stopping ──(what was read is answered)──► paused ──Resume──► reading
//
// What comes meanwhile stays in the socket. Requests that may wait for ever are not waited
// for: they are told, as Asked, and are not answered until Resume.
type Serving struct{ e *engine }

// Asked is a request that is not answered yet.
type Asked struct {
	Type MsgType
	Seq  uint64
	Body []byte
	For  time.Duration // it has been waiting
}

// NewServing is Serve in two steps: Run does it. Requests that were asked of another
// process before are served first.
func NewServing(ctx context.Context, c *Conn, h Handler, asked ...Asked) *Serving {
	e := newEngine(ctx, c, h, nil)
	e.early = asked
	return &Serving{e}
}

// Run is Serve.
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
	moved   chan struct{} // capacity 1: something was answered, or the reader has stopped
	reader  bool          // has stopped; guarded by engine.mu
}

// ErrEnding is why a Serving cannot be paused that ends of itself.
var ErrEnding = gpuerr.New(gpuerr.Busy, "a session is ending")

// pausePatience is how long a peer may leave replies unread, so that there is no room for
// others, while its serving is to be paused: everybody else waits for it. Once or twice that.
const pausePatience = time.Second

// Pause stops reading, and returns when everything that was read is answered but for what
// mayWait; these are told. When ctx ends first nothing is stopped; ErrEnding when the
// serving ends. A peer that does not take what it has asked for is dropped.
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

// unread reports whether there are replies that are made and not taken.
func (e *engine) unread() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count > len(e.seqs)
}

// still reports whether nothing moves, and what waits.
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

// Resume goes on after a Pause.
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
	if e.ctx.Err() != nil { // the interruption may have been this one
		e.conn.interruptRead()
	}
}

// movedLocked tells a pause that something has happened.
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

// awaitResume is the reader's, which stands still while the engine is paused.
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

// interrupted reports whether the reader was woken for a pause, or by one that is over.
func (e *engine) interrupted(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) && e.ctx.Err() == nil
}

// beginReply takes the right to answer a request: while the engine is paused what may wait waits.
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

// request is one that has no reply yet.
type request struct {
	Type  MsgType
	Body  []byte
	since time.Time
}

// takeEarly serves what was asked of another process.
func (e *engine) takeEarly() error {
	for _, a := range e.early {
		if err := e.accept(&Message{Type: a.Type, Seq: a.Seq, Body: a.Body}); err != nil {
			return err
		}
	}
	e.early = nil
	return nil
}
