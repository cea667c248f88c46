package control

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"capgpu/gpuerr"
	"capgpu/internal/yield"
)

// Handler answers one request. It may block until ctx ends; ctx ends when the peer
// is gone. The handler owns m.FDs, as many as the type demands. A deferred
// m.CloseFDs, with m.FDs = nil once they have another owner, loses none. m.Body has
// been parsed once, so it is well-formed. Serve owns the reply's FDs. Types that
// docs/wire.md does not define never reach a handler.
type Handler func(ctx context.Context, m *Message) *Message

// Serve answers requests until the peer is gone, a reply is marked Last, or ctx
// ends. It closes c and returns when no handler runs any more: nil when the peer
// left or Last was sent, ctx's error, or gpuerr.Protocol when the peer broke the
// rules.
func Serve(ctx context.Context, c *Conn, h Handler) error {
	return newEngine(ctx, c, h, nil).run()
}

// engine is the reader of one socket with the handlers it started.
//
//	reading ──64 requests in flight──► full ──one ends──► reading
//	   └────── peer gone, ctx, Last, bad message ──► draining ──► closed
type engine struct {
	conn    *Conn
	handler Handler                 // nil: the peer may not ask
	replies func(m *Message) error  // nil: the peer may not answer
	ctx     context.Context         // of the handlers
	cancel  context.CancelCauseFunc // ends ctx
	parent  context.Context         // the owner's context
	onEnd   func(err error)         // if set, called with the reason before waiting for handlers
	running sync.WaitGroup          // handlers

	mu sync.Mutex
	// +checklocks:mu
	count int // requests being served, until their replies are on their way
	// +checklocks:mu
	seqs map[uint64]request // requests without a reply
	// +checklocks:mu
	pause *pause // nil: it is not paused (pause.go)
	// +checklocks:mu
	full bool // the reader waits for a request to end
	// +checklocks:mu
	last *Message // the reply marked Last, sent after all others

	early []Asked // served before anything is read
}

func newEngine(ctx context.Context, c *Conn, h Handler, replies func(*Message) error) *engine {
	e := &engine{conn: c, handler: h, replies: replies, parent: ctx, seqs: map[uint64]request{}}
	e.ctx, e.cancel = context.WithCancelCause(ctx)
	return e
}

// errLast means that reading ended because of a handler's Last reply.
var errLast = errors.New("the last reply was given")

// run reads until the end and leaves nothing behind.
func (e *engine) run() error {
	// The end of ctx (by the owner, or a Last reply) interrupts the reader.
	interrupted := make(chan struct{})
	stop := context.AfterFunc(e.ctx, func() {
		e.conn.interruptRead()
		close(interrupted)
	})

	err := e.read()
	e.cancel(err)
	if e.onEnd != nil {
		e.onEnd(err)
	}
	if !stop() {
		<-interrupted
	}

	if reply := answer(err); reply != nil {
		// The peer broke the rules: its other requests are not answered.
		e.send(reply)
		e.conn.Close()
	}

	if errors.Is(err, io.EOF) {
		e.conn.Close() // nobody reads replies any more
	}

	e.running.Wait()
	e.mu.Lock()
	last := e.last
	e.mu.Unlock()
	if last != nil {
		e.send(last)
	}

	e.conn.Close()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, errLast):
		return nil
	case e.parent.Err() != nil && gpuerr.CodeOf(err) != gpuerr.Protocol:
		return context.Cause(e.parent)
	}

	return err
}

// read takes messages until something ends it, and returns the reason.
func (e *engine) read() error {
	if err := e.takeEarly(); err != nil {
		return err
	}
	for {
		if err := e.awaitRoom(); err != nil {
			return err
		}

		m, err := e.conn.Recv()
		if err != nil {
			if e.interrupted(err) {
				continue
			}
			if e.ctx.Err() != nil && !errors.Is(err, io.EOF) {
				return context.Cause(e.ctx)
			}
			return err
		}

		if err := e.accept(m); err != nil {
			m.CloseFDs()
			return err
		}
	}
}

// awaitRoom returns when fewer than MaxInFlight requests are being served. While it
// waits it still notices when the peer leaves.
func (e *engine) awaitRoom() error {
	for {
		e.awaitResume()
		if e.ctx.Err() != nil {
			return context.Cause(e.ctx)
		}

		e.mu.Lock()
		e.full = e.count >= MaxInFlight
		full := e.full
		e.mu.Unlock()
		if !full {
			return nil
		}
		if err := e.conn.awaitHangup(); err != nil {
			return err
		}

		e.mu.Lock()
		e.full = false
		e.conn.resumeRead()
		e.mu.Unlock()
		if e.ctx.Err() != nil { // this pause may have caused the interruption
			return context.Cause(e.ctx)
		}
	}
}

// accept passes a message to a waiting caller, or starts a handler. On an error the
// socket must end, and m still owns the descriptors.
func (e *engine) accept(m *Message) error {
	if m.Reply {
		if e.replies == nil {
			return &badMessage{err: gpuerr.New(gpuerr.Protocol, "%v: a reply to a request that was not sent", m.Type)}
		}
		return e.replies(m)
	}

	bad := func(format string, args ...any) error {
		return &badMessage{err: gpuerr.New(gpuerr.Protocol, format, args...), typ: m.Type, seq: m.Seq}
	}

	if e.handler == nil {
		return bad("%v: this side answers no requests", m.Type)
	}

	l := layouts[m.Type]
	if l != nil && m.announced != l.requestFDs {
		return bad("%v: fds: %d came, %d belong to it", m.Type, m.announced, l.requestFDs)
	}

	if l != nil {
		if err := CheckBody(m.Type, false, m.Body); err != nil {
			return bad("%v: %s", m.Type, gpuerr.From(err).Msg)
		}
	}

	e.mu.Lock()
	if _, served := e.seqs[m.Seq]; served {
		e.mu.Unlock()
		return bad("seq: %d is being served", m.Seq)
	}

	e.seqs[m.Seq] = request{Type: m.Type, Body: m.Body, since: time.Now()}
	e.count++
	e.mu.Unlock()
	e.running.Add(1)
	go e.runRequest(m)
	return nil
}

// runRequest serves one request and sends its reply.
func (e *engine) runRequest(m *Message) {
	defer e.running.Done()
	seq, typ := m.Seq, m.Type // the handler may change the message
	yield.Step()
	reply := e.handle(m)
	yield.Step()
	reply.Type, reply.Reply, reply.Seq = typ, true, seq
	if err := checkReply(reply); err != nil {
		reply.CloseFDs()
		reply = ErrorReply(&Message{Type: typ, Seq: seq}, gpuerr.New(gpuerr.Internal, "%v: the reply is malformed: %s", typ, gpuerr.From(err).Msg))
	}

	// The caller may reuse the number as soon as it sees the reply, but the request
	// counts until then. This stops reading from a peer that does not read.
	e.beginReply(typ, seq)
	if reply.Last {
		e.mu.Lock()
		first := e.last == nil
		if first {
			e.last = reply
		}
		e.mu.Unlock()
		if first {
			e.cancel(errLast)
			return
		}
	}

	err := e.send(reply)
	e.mu.Lock()
	e.count--
	e.movedLocked()
	if e.full {
		e.conn.interruptRead()
	}

	e.mu.Unlock()
	if err != nil {
		e.cancel(err)
	}
}

// lateTime bounds a reply after the owner has ended the serving.
const lateTime = 100 * time.Millisecond

// send sends a reply and closes its descriptors. After the owner has ended the
// serving, handlers' replies still reach a peer that reads.
func (e *engine) send(reply *Message) error {
	defer reply.CloseFDs()
	ctx := e.parent
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), lateTime)
		defer cancel()
	}
	return e.conn.Send(ctx, reply)
}

// handle calls the handler. A panic answers the request with E_INTERNAL.
func (e *engine) handle(m *Message) (reply *Message) {
	if !m.Type.Known() {
		m.CloseFDs()
		return ErrorReply(m, gpuerr.New(gpuerr.Unimplemented, "%v: no such message", m.Type))
	}
	if m.refused != nil {
		return ErrorReply(m, m.refused)
	}
	defer func() {
		if p := recover(); p != nil {
			// The handler owns the descriptors: it may have given them away.
			slog.Error("control: a handler panicked", "message", m.Type, "panic", p, "stack", string(debug.Stack()))
			reply = ErrorReply(m, gpuerr.New(gpuerr.Internal, "%v: the service failed while it served this request", m.Type))
		}
	}()

	if reply = e.handler(e.ctx, m); reply == nil {
		reply = ErrorReply(m, gpuerr.New(gpuerr.Internal, "%v: no answer", m.Type))
	}

	return reply
}

// checkReply returns an error for a reply that the other side's Caller would
// refuse.
func checkReply(m *Message) error {
	if m.Code != gpuerr.None {
		if len(m.FDs) > 0 || m.announced > 0 || !m.Code.Valid() {
			return gpuerr.New(gpuerr.Protocol, "an error with descriptors, or of no known code")
		}
		_, err := ParseErrorBody(m.Body)
		return err
	}
	l := layouts[m.Type]
	if l == nil {
		return gpuerr.New(gpuerr.Protocol, "no such message")
	}
	if fds := max(len(m.FDs), m.announced); fds != l.replyFDs && !(fds == 0 && l.fdsOptional) {
		return gpuerr.New(gpuerr.Protocol, "fds: %d came, %d belong to it", fds, l.replyFDs)
	}
	return CheckBody(m.Type, true, m.Body)
}
