package peers

import "sync"

// Shares divides a number of places among holders. A path names a holder: a peer,
// or a peer and one of its users.
//
// A peer that holds none may take any free places. A peer that holds some may hold
// three times the places that remain free: three quarters when alone, three
// sevenths beside another such peer, and never all. A user of a peer may hold three
// times the places that its peer could still take. (In switches this is a dynamic
// threshold: Choudhury and Hahne, "Dynamic Queue Length Thresholds for
// Shared-Memory Packet Switches", 1998.)
//
// A Shares may be used from any goroutine.
type Shares struct {
	most int64

	mu   sync.Mutex
	held holder // +checklocks:mu
}

// holder is a holder's number of places, with all below it.
type holder struct {
	n  int64
	of map[string]*holder
}

// NewShares divides this many places, or bytes.
func NewShares(most int64) *Shares { return &Shares{most: most} }

// Most is the number of places.
func (s *Shares) Most() int64 { return s.most }

// Take takes n places, or none. It returns false if they exceed the share of a
// holder in path.
func (s *Shares) Take(n int64, path ...string) bool {
	if n == 0 {
		return true
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	room, at := s.most-s.held.n, &s.held
	for _, name := range path {
		own := int64(0)
		if at != nil {
			at = at.of[name]
		}
		if at != nil {
			own = at.n
		}
		if n > room || own > 0 && own+n > times*(room-n) {
			return false
		}
		// The number that it could take if nobody else did, or at least n.
		room = max(n, (times*room-own)/(times+1))
	}

	s.held.take(n, path)
	return true
}

// times is the ratio of a holder's bound to the places that remain.
const times = 3

// pass takes n places from one holder for another, whatever their shares.
func (s *Shares) pass(n int64, from, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held.give(n, []string{from})
	s.held.take(n, []string{to})
}

// Give gives back n places that Take took for the same path.
func (s *Shares) Give(n int64, path ...string) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held.give(n, path)
}

func (h *holder) take(n int64, path []string) {
	h.n += n
	if len(path) == 0 {
		return
	}
	if h.of == nil {
		h.of = map[string]*holder{}
	}
	if h.of[path[0]] == nil {
		h.of[path[0]] = &holder{}
	}
	h.of[path[0]].take(n, path[1:])
}

func (h *holder) give(n int64, path []string) {
	h.n -= n
	if len(path) == 0 {
		return
	}
	below := h.of[path[0]]
	below.give(n, path[1:])
	if below.n == 0 {
		delete(h.of, path[0])
	}
}

// Held is the total number of taken places.
func (s *Shares) Held() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held.n
}
