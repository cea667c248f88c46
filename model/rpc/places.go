package rpc

import (
	"context"
	"strconv"
	"sync"
	"time"

	capnp "capnproto.org/go/capnp/v3/server"

	"capgpu/gpuerr"
)

const (
	// maxConns is how many clients are served at a time.
	maxConns = 64
	// maxPerUser is how many of them are one user's.
	maxPerUser = 48
	// maxLeaving is how many connections may be on their way out beside those: clients
	// that gave up their place, and clients that are told that there is none.
	maxLeaving = 64
	// unread is how long a client may leave its answers alone before its place may go to
	// another.
	unread = time.Minute
)

// places are who is served. When there are no more, a client that does not say anything
// gives up its place to one that comes: that keeps nobody out. Who waits in a call keeps
// it, and who has an answer that has not been asked for something for too long does not.
// Of several it is the one that is quiet for the longest among those of the user who has
// the most. number counts the places that were given. The zero value is ready.
type places struct {
	mu      sync.Mutex
	held    map[*place]struct{} // +checklocks:mu
	number  uint64              // +checklocks:mu
	leaving int                 // +checklocks:mu
}

// place is a client's.
type place struct {
	of     *places
	user   uint32
	number uint64
	end    context.CancelCauseFunc // of the connection

	// Guarded by of.mu.
	calls, streams int
	since          time.Time // the end of the last call; of the first, that it came
	lost           bool      // to another
}

// take gives a client of a user a place, if need be that of another. end is called if
// another takes it later. E_BUSY: everybody who has one uses it.
func (s *places) take(user uint32, end context.CancelCauseFunc) (*place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := map[uint32]int{}
	for p := range s.held {
		of[p.user]++
	}
	var err error
	switch {
	case of[user] >= maxPerUser:
		err = s.freeLocked(func(p *place) bool { return p.user == user }, of)
	case len(s.held) >= maxConns:
		err = s.freeLocked(func(*place) bool { return true }, of)
	}
	if err != nil {
		return nil, err
	}
	if s.held == nil {
		s.held = map[*place]struct{}{}
	}
	s.number++
	p := &place{of: s, user: user, number: s.number, end: end, since: time.Now()}
	s.held[p] = struct{}{}
	return p, nil
}

// freeLocked ends a quiet one of those that may go.
//
// +checklocks:s.mu
func (s *places) freeLocked(may func(*place) bool, of map[uint32]int) error {
	var out *place
	for p := range s.held {
		quiet := p.calls == 0 && (p.streams == 0 || time.Since(p.since) >= unread)
		if quiet && may(p) && (out == nil || of[p.user] > of[out.user] || of[p.user] == of[out.user] && p.since.Before(out.since)) {
			out = p
		}
	}
	if out == nil || s.leaving >= maxLeaving {
		return gpuerr.New(gpuerr.Busy, "%d clients are served (of one user at most %d); try again", len(s.held), maxPerUser)
	}
	out.lost = true
	delete(s.held, out)
	s.leaving++
	out.end(errLost)
	return nil
}

var errLost = gpuerr.New(gpuerr.Busy, "another client has taken the place of this one, which was quiet")

// refusing takes one of the few places of clients that are only told that there is none.
func (s *places) refusing() (done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving >= maxLeaving {
		return nil, false
	}
	s.leaving++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leaving--
	}, true
}

// leave gives the place back, once: the connection has ended.
func (p *place) leave() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.lost {
		p.of.leaving--
	}
	delete(p.of.held, p)
}

// tag is who asks, for taking turns.
func (p *place) tag() string { return "rpc" + strconv.FormatUint(p.number, 10) }

// said counts calls and answers that begin and end.
func (p *place) said(calls, streams int) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.calls += calls
	p.streams += streams
	p.since = time.Now()
}

// counted has the calls of methods be known while they last.
func (p *place) counted(methods []capnp.Method) []capnp.Method {
	for i, m := range methods {
		methods[i].Impl = func(ctx context.Context, call *capnp.Call) error {
			p.said(+1, 0)
			defer p.said(-1, 0)
			return m.Impl(ctx, call)
		}
	}
	return methods
}
