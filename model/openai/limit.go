package openai

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"

	"capgpu/model/lm"
	"capgpu/model/peers"
)

// Limit accepts at most connections at a time from l, and gives one peer its share
// of them (peers.Places). A connection is quiet while it waits for its client: for
// a request, for the next one, or for the rest of one. Silent clients therefore
// keep nobody out. If no connection is quiet, a new one is answered E_BUSY,
// whatever it asks. The server must be of NewServer.
func Limit(l net.Listener, connections int) net.Listener {
	return &limited{Listener: l, places: peers.NewPlaces(connections)}
}

type limited struct {
	net.Listener
	places *peers.Places
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer := peers.Behind(c)
		p, full := l.places.Take(peer, func(error) { c.Close() })
		if full == nil {
			return &limitedConn{Conn: c, peer: peer, place: p, leave: p.Leave}, nil
		}
		if done, ok := l.places.Refusing(peer); ok {
			return &limitedConn{Conn: c, peer: peer, refused: full, leave: done}, nil
		}
		c.Close()
	}
}

type limitedConn struct {
	net.Conn
	peer    string
	leave   func()
	refused error        // why it has no place; nil: it has one
	place   *peers.Place // nil: it has no place

	mu sync.Mutex
	// +checklocks:mu
	busy bool // does not wait for its client
}

// waits records whether c waits for its client from now on.
func (c *limitedConn) waits(quiet bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.place == nil || c.busy != quiet:
		return
	case quiet:
		c.place.Count(-1, 0)
	default:
		c.place.Count(+1, 0)
	}
	c.busy = !quiet
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}

// watch receives the states of connections from http.Server.
func watch(c net.Conn, state http.ConnState) {
	if lc, ok := c.(*limitedConn); ok && (state == http.StateActive || state == http.StateIdle) {
		lc.waits(state == http.StateIdle)
	}
}

// awaits marks a request as waiting for the rest of itself, until done.
func awaits(ctx context.Context) (done func()) {
	c := connOf(ctx)
	if c == nil {
		return func() {}
	}
	c.waits(true)
	return func() { c.waits(false) }
}

// connKey is the key of the connection in a request's context.
type connKey struct{}

// remember is http.Server.ConnContext: it stores the connection and its asker in
// the context.
func remember(ctx context.Context, c net.Conn) context.Context {
	var who lm.Asker
	switch l, ok := c.(*limitedConn); {
	case !ok:
		who.Peer = peers.Behind(c)
	case l.place == nil:
		who.Peer = l.peer
	default: // a user of its own until a request names one
		who = lm.Asker{Peer: l.peer, User: "http" + strconv.FormatUint(l.place.Number, 10)}
	}
	return lm.WithAsker(context.WithValue(ctx, connKey{}, c), who)
}

// connOf is the connection of a request, if Limit has accepted it; else nil.
func connOf(ctx context.Context) *limitedConn {
	c, _ := ctx.Value(connKey{}).(*limitedConn)
	return c
}
