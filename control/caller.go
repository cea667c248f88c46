package control

import (
	"context"
	"errors"
	"sync"

	"capgpu/gpuerr"
)

// Caller sends requests over a Conn. Any number of goroutines may call. At most
// MaxInFlight requests are open at once, including abandoned ones, because the
// other side serves no more.
type Caller struct {
	conn  *Conn
	slots chan struct{} // a token per open request
	done  chan struct{} // closed when no request can be sent any more
	ended chan struct{} // closed when the reader and the handlers are gone

	cancel context.CancelCauseFunc

	mu sync.Mutex
	// +checklocks:mu
	seq uint64 // of the last request
	// +checklocks:mu
	open map[uint64]*openCall
	// +checklocks:mu
	err error // the reason why done is closed
}

// openCall is a request without a reply.
type openCall struct {
	typ       MsgType
	reply     chan *Message // holds one
	abandoned bool          // nobody waits for the reply. Guarded by Caller.mu.
}

// NewCaller starts a Caller on a socket with a peer that sends no requests. It owns
// c.
func NewCaller(c *Conn) *Caller { return NewPeer(context.Background(), c, nil) }

// NewPeer starts a Caller on a link on which both sides send requests; h answers
// the other side's as Serve does. While h serves MaxInFlight requests, replies are
// not read either, so a handler that itself calls must use a deadline. The end of
// ctx ends the link. NewPeer owns c.
func NewPeer(ctx context.Context, c *Conn, h Handler) *Caller {
	c.expectLong()
	ctx, cancel := context.WithCancelCause(ctx)
	k := &Caller{
		conn: c, cancel: cancel,
		slots: make(chan struct{}, MaxInFlight),
		done:  make(chan struct{}),
		ended: make(chan struct{}),
		open:  map[uint64]*openCall{},
	}
	e := newEngine(ctx, c, h, k.deliver)
	e.onEnd = k.end
	go k.runReader(e)
	return k
}

// runReader delivers replies, and starts handlers, until the socket ends.
func (k *Caller) runReader(e *engine) {
	defer close(k.ended)
	defer k.cancel(nil)
	e.run()
}

// end fails every open request. It is called once, before waiting for the handlers.
func (k *Caller) end(err error) {
	switch code := gpuerr.CodeOf(err); {
	case code == gpuerr.Closed, code == gpuerr.Protocol, code == gpuerr.Disconnected:
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		err = errConnClosed
	default: // io.EOF, or the kernel's error for a dead socket
		err = errGone
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
	clear(k.open)
	close(k.done)
}

var errGone = gpuerr.New(gpuerr.Disconnected, "the other side of the connection is gone")

// Call sends a request and waits for its reply. An error in the reply is returned
// as its *gpuerr.Error. A returned reply is well-formed and has the descriptors
// that its type demands; the caller owns them. fds are only lent. When ctx ends
// first, the request is abandoned, its reply is dropped when it comes, and Call
// returns ctx's error.
func (k *Caller) Call(ctx context.Context, t MsgType, body []byte, fds []int) (*Message, error) {
	if err := CheckBody(t, false, body); err != nil {
		return nil, gpuerr.New(gpuerr.Invalid, "%v: %s", t, gpuerr.From(err).Msg)
	}
	if want := layouts[t].requestFDs; len(fds) != want {
		return nil, gpuerr.New(gpuerr.Invalid, "%v: fds: %d given, %d belong to it", t, len(fds), want)
	}

	select {
	case <-k.done:
		return nil, k.Err()
	default:
	}

	select {
	case k.slots <- struct{}{}:
	case <-k.done:
		return nil, k.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}

	q := &openCall{typ: t, reply: make(chan *Message, 1)}
	seq, err := k.ask(q)
	if err != nil {
		return nil, err
	}

	if err := k.conn.Send(ctx, &Message{Type: t, Seq: seq, Body: body, FDs: fds}); err != nil {
		k.forget(seq, q)
		select {
		case <-k.done: // report what ended the connection, not its effect on this message
			return nil, k.Err()
		default:
			return nil, err
		}
	}

	select {
	case m := <-q.reply:
		return k.answered(m)
	case <-k.done:
	case <-ctx.Done():
		if k.abandon(seq, q) {
			return nil, ctx.Err()
		}
	}

	// A reply that was delivered meanwhile counts.
	select {
	case m := <-q.reply:
		return k.answered(m)
	default:
		return nil, k.Err()
	}
}

func (k *Caller) answered(m *Message) (*Message, error) {
	if err := m.Err(); err != nil {
		return nil, err
	}
	return m, nil
}

// ask registers a request.
func (k *Caller) ask(q *openCall) (seq uint64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return 0, k.err
	}
	k.seq++
	k.open[k.seq] = q
	return k.seq, nil
}

// forget removes a request that was never sent. A peer may have answered it anyway.
func (k *Caller) forget(seq uint64, q *openCall) {
	k.mu.Lock()
	_, ok := k.open[seq]
	delete(k.open, seq)
	k.mu.Unlock()
	if ok {
		<-k.slots
		return
	}
	select {
	case m := <-q.reply:
		m.CloseFDs()
	default:
	}
}

// abandon reports whether q is still open. If so, its reply will be dropped.
func (k *Caller) abandon(seq uint64, q *openCall) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.open[seq] != q {
		return false
	}
	q.abandoned = true
	return true
}

// deliver takes a reply from the reader. On an error the link must end, and m still
// owns the descriptors.
func (k *Caller) deliver(m *Message) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	q := k.open[m.Seq]
	if q == nil {
		return gpuerr.New(gpuerr.Protocol, "%v: seq: no request has number %d", m.Type, m.Seq)
	}
	if q.typ != m.Type {
		return gpuerr.New(gpuerr.Protocol, "%v: type: the request was %v", m.Type, q.typ)
	}
	if err := checkReply(m); err != nil {
		return gpuerr.New(gpuerr.Protocol, "%v: %s", m.Type, gpuerr.From(err).Msg)
	}

	delete(k.open, m.Seq)
	<-k.slots
	if q.abandoned {
		m.CloseFDs()
		return nil
	}
	if m.refused != nil { // the request succeeded over there, but its descriptors are lost here
		m = ErrorReply(m, m.refused)
	}

	q.reply <- m
	return nil
}

// Done is closed when the connection has ended.
func (k *Caller) Done() <-chan struct{} { return k.done }

// Err is the reason for the end: gpuerr.Disconnected when the other side left,
// gpuerr.Closed after Close, gpuerr.Protocol when the other side broke the rules;
// nil before the end.
func (k *Caller) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// Close ends the connection, fails every open request and returns when no handler
// runs any more. A handler must not call it.
func (k *Caller) Close() error {
	k.cancel(errConnClosed)
	<-k.ended
	return k.conn.Close()
}
