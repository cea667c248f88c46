package peers

import (
	"sync"
	"time"

	"capgpu/gpuerr"
)

// Unread is how long a client may leave its answers alone before its place may go to
// another.
const Unread = time.Minute

// maxLeaving is how many connections may be on their way out beside those that have places:
// those that lost theirs, and those that are told that there is none. They are shared by
// peer, too, by whose coming they leave.
const maxLeaving = 64

// Places are those of connections, of which a peer has its share (Shares). Where none is
// left for a peer, one of its own that says nothing loses its place; where none is left at
// all, a quiet one of the peer with the most does. Who waits in a call keeps it, and who has
// an answer that has not been asked for something for too long does not.
type Places struct {
	most    int
	shares  *Shares
	leaving *Shares

	mu sync.Mutex
	// +checklocks:mu
	held map[*Place]struct{}
	// +checklocks:mu
	of map[string]int // how many of held, by peer
	// +checklocks:mu
	number uint64
}

// Place is a client's.
type Place struct {
	Peer   string
	Number uint64 // no other place has it

	of  *Places
	end func(error) // of the connection

	// Guarded by of.mu.
	calls, streams int
	since          time.Time // the end of the last call; of the first, that it came
	lost           bool      // to another, of peer to
	to             string
	left           bool
}

// NewPlaces is so many places.
func NewPlaces(most int) *Places {
	return &Places{most: most, shares: NewShares(int64(most)), leaving: NewShares(maxLeaving), held: map[*Place]struct{}{}, of: map[string]int{}}
}

// Take gives a client of a peer a place, if need be that of another. end is called if
// another takes it later; it must not wait. gpuerr.Busy: no place is left for this peer, and
// all that it might have are in use.
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

// quietLocked is the quiet one that makes way for one more of a peer, and is leaving.
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

// ErrLost is why a connection ends that lost its place.
var ErrLost = gpuerr.New(gpuerr.Busy, "another client has taken the place of this one, which was quiet")

// Refusing takes one of the few places of clients that are only told that there is none.
func (s *Places) Refusing(peer string) (done func(), ok bool) {
	if !s.leaving.Take(1, peer) {
		return nil, false
	}
	return sync.OnceFunc(func() { s.leaving.Give(1, peer) }), true
}

// Leave gives the place back: the connection has ended. A second time is of no effect.
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

// Said counts calls and answers that begin and end.
func (p *Place) Said(calls, streams int) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.calls += calls
	p.streams += streams
	p.since = time.Now()
}
