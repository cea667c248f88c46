package peers

import "sync"

// Shares divides a number of places among those who take them. A path names who: a peer,
// or a peer and one of its users.
//
// A peer that holds none may take what is free. One that holds some may hold three times
// what is free after it: alone three quarters, beside another such three sevenths, and
// never all. A user of a peer may hold three times what its peer could still take after it.
// (Of switches this is known as a dynamic threshold: Choudhury and Hahne, "Dynamic Queue
// Length Thresholds for Shared-Memory Packet Switches", 1998.)
//
// A Shares may be used from any goroutine.
type Shares struct {
	most int64

	mu   sync.Mutex
	held holder // +checklocks:mu
}

// holder is what one holds, with all below it.
type holder struct {
	n  int64
	of map[string]*holder
}

// NewShares is so many places, or bytes.
func NewShares(most int64) *Shares { return &Shares{most: most} }

// Most is how many places there are.
func (s *Shares) Most() int64 { return s.most }

// Take takes n places, or none; false: they would be more than the share of one in path.
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
		// What it could take if nobody else did, or at least this.
		room = max(n, (times*room-own)/(times+1))
	}

	s.held.take(n, path)
	return true
}

// times is how many times what is left one may hold.
const times = 3

// pass takes n places of one for another, whatever their shares are.
func (s *Shares) pass(n int64, from, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held.give(n, []string{from})
	s.held.take(n, []string{to})
}

// Give gives n places back, of those that Take took for the same path.
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

// Held is how many places are taken, of all together.
func (s *Shares) Held() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held.n
}
