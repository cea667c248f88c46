package openai

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// Limit takes at most so many connections at a time from l. When there is one more, that
// which has waited the longest for its client is closed: for a request, for the next
// one, or for the rest of one. So clients that say nothing keep nobody out. Where none
// waits for its client, the new one waits until one does, or ends. The server must be of
// NewServer.
func Limit(l net.Listener, connections int) net.Listener {
	return &limited{Listener: l, most: connections, changed: make(chan struct{}, 1), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	most    int
	changed chan struct{} // holds one: count or quiet has changed
	closed  chan struct{}
	once    sync.Once

	mu    sync.Mutex
	count int       // guarded by mu
	quiet list.List // of *limitedConn that wait for their clients, the longest first; guarded by mu
}

func (l *limited) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for {
		if lc := l.place(c); lc != nil {
			return lc, nil
		}
		select {
		case <-l.changed:
		case <-l.closed:
			c.Close()
			return nil, net.ErrClosed
		}
	}
}

// place gives c a place: a free one, or that of who is quiet the longest.
func (l *limited) place(c net.Conn) *limitedConn {
	l.mu.Lock()
	var quiet *limitedConn
	if first := l.quiet.Front(); l.count >= l.most && first != nil {
		quiet = first.Value.(*limitedConn)
	}
	l.mu.Unlock()
	if quiet != nil {
		quiet.Close()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count >= l.most {
		return nil
	}
	l.count++
	lc := &limitedConn{Conn: c, l: l, number: numbers.Add(1)}
	lc.quiet = l.quiet.PushBack(lc)
	return lc
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func (l *limited) tell() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// numbers is how many connections there have been.
var numbers atomic.Uint64

type limitedConn struct {
	net.Conn
	l      *limited
	number uint64        // no other has it
	quiet  *list.Element // of l.quiet; nil: it does not wait for its client. guarded by l.mu
	gone   bool          // has no place any more; guarded by l.mu
}

// waits says whether c waits for its client from now on.
func (c *limitedConn) waits(quiet bool) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.quiet != nil {
		c.l.quiet.Remove(c.quiet)
		c.quiet = nil
	}
	if quiet && !c.gone {
		c.quiet = c.l.quiet.PushBack(c)
		c.l.tell()
	}
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if !c.gone {
		c.gone = true
		c.l.count--
	}
	if c.quiet != nil {
		c.l.quiet.Remove(c.quiet)
		c.quiet = nil
	}
	c.l.tell()
	return err
}

// watch is told about connections by http.Server.
func watch(c net.Conn, state http.ConnState) {
	if lc, ok := c.(*limitedConn); ok && (state == http.StateActive || state == http.StateIdle) {
		lc.waits(state == http.StateIdle)
	}
}

// awaits says that a request waits for the rest of itself, until done.
func awaits(ctx context.Context) (done func()) {
	c := connOf(ctx)
	if c == nil {
		return func() {}
	}
	c.waits(true)
	return func() { c.waits(false) }
}
