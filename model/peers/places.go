package peers

import (
	"sync"
	"time"

	"capgpu/gpuerr"
)

// Unread limits how long a client may leave its answers unread before its place may
// go to another.
const Unread = time.Minute

// maxLeaving bounds the connections that are leaving, beside those with places:
// connections that lost their place, and connections that are being refused. They
// are shared by peer, too: by the peer that caused them to leave.
const maxLeaving = 64

// Places are places for connections; a peer has its share of them (Shares). When a
// peer's share is full, a quiet connection of its own loses its place; when no
// place is left at all, a quiet one of the peer with the most does. A client that
// waits in a call keeps its place. A client with an answer keeps it only if it
// asked for some of the answer recently.
type Places struct {
	most    int
	shares  *Shares
	leaving *Shares

	mu sync.Mutex
	// +checklocks:mu
	held map[*Place]struct{}
	// +checklocks:mu
	of map[string]int // the number held, by peer
	// +checklocks:mu
	number uint64
}

// Place is a client's place.
type Place struct {
	Peer   string
	Number uint64 // no other place has it

	of  *Places
	end func(error) // of the connection

	// Guarded by of.mu.
	calls, streams int
	since          time.Time // the end of the last call; before the first, the arrival
	lost           bool      // to a new client of peer to
	to             string
	left           bool
}

// NewPlaces makes this many places.
func NewPlaces(most int) *Places {
	return &Places{most: most, shares: NewShares(int64(most)), leaving: NewShares(maxLeaving), held: map[*Place]struct{}{}, of: map[string]int{}}
}

// Take gives a client of a peer a place, if need be another's. If a later client
// takes the place, end is called; it must not block. gpuerr.Busy: no place is left
// for this peer, and every place that it might take is in use.
func (s *Places) Take(peer string, end func(error)) (*Place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shares.Take(1, peer) {
		lost, err := s.quietLocked(peer)
		if err != nil {
			return nil, err
		}
		s.shares.pass(1, lost.Peer, peer)
		s.dropLocked(lost)
		lost.lost, lost.to = true, peer
		lost.end(ErrLost)
	}

	s.number++
	p := &Place{of: s, Peer: peer, Number: s.number, end: end, since: time.Now()}
	s.held[p] = struct{}{}
	s.of[peer]++
	return p, nil
}

// quietLocked returns the quiet connection that makes way for one more of a peer;
// it is then leaving.
//
// +checklocks:s.mu
func (s *Places) quietLocked(peer string) (*Place, error) {
	full := len(s.held) >= s.most
	var out *Place
	for p := range s.held {
		quiet := p.calls == 0 && (p.streams == 0 || time.Since(p.since) >= Unread)
		if !quiet || p.Peer != peer && (!full || s.of[p.Peer] <= s.of[peer]) {
			continue
		}
		if out == nil || s.of[p.Peer] > s.of[out.Peer] || s.of[p.Peer] == s.of[out.Peer] && p.since.Before(out.since) {
			out = p
		}
	}
	if out == nil || !s.leaving.Take(1, peer) {
		return nil, gpuerr.New(gpuerr.Busy, "%d clients are served, %d of them yours, and there may be %d, of one user or machine at most three quarters; close one, or try again", len(s.held), s.of[peer], s.most)
	}
	return out, nil
}

// +checklocks:s.mu
func (s *Places) dropLocked(p *Place) {
	delete(s.held, p)
	if s.of[p.Peer]--; s.of[p.Peer] == 0 {
		delete(s.of, p.Peer)
	}
}

// ErrLost is the end of a connection that lost its place.
var ErrLost = gpuerr.New(gpuerr.Busy, "another client has taken the place of this one, which was quiet")

// Refusing takes one of the few places for clients that are being refused.
func (s *Places) Refusing(peer string) (done func(), ok bool) {
	if !s.leaving.Take(1, peer) {
		return nil, false
	}
	return sync.OnceFunc(func() { s.leaving.Give(1, peer) }), true
}

// Leave gives the place back: the connection has ended. A second call has no
// effect.
func (p *Place) Leave() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	switch {
	case p.left:
	case p.lost:
		p.of.leaving.Give(1, p.to)
	default:
		p.of.shares.Give(1, p.Peer)
		p.of.dropLocked(p)
	}
	p.left = true
}

// Count counts calls and answers that begin and end.
func (p *Place) Count(calls, streams int) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.calls += calls
	p.streams += streams
	p.since = time.Now()
}
