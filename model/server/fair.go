package server

import (
	"slices"
	"time"

	"capgpu/model/lm"
)

// fair divides time: first among peers, then among the users of a peer, then among
// one user's items. It is a tree of shares:
//
//	all ── peer ── user ── item (a request, or a text to tokenize)
//
// Among siblings, the share with the least time goes first (charge). A share that
// arrives, or returns, starts at the others' average (now), so that it gains
// nothing for time that it did not ask for. A departing share leaves its debt
// behind: the time that it had above its part, up to memory, and for at most idle
// shares.
//
// The zero value is ready. The owner's lock guards it.
type fair[T any] struct {
	all    share[T]
	number uint64
}

// share is one node: what it has had, and has.
type share[T any] struct {
	above  *share[T] // nil: all
	name   string
	number uint64 // order of arrival
	item   T
	of     map[string]*share[T] // by name; in the root and in peers
	line   []*share[T]          // in a user: its waiting items, the oldest first

	items  int           // items below that are not gone yet
	active int           // shares below that ask for time
	had    time.Duration // in its siblings' scale
	now    time.Duration // the average of what the shares below have had
	use    use
}

// use is a node's use of the room, with all below it.
type use struct{ waiting, places, pages int }

const (
	// memory bounds how far a share's time may count above or below the others'.
	memory = time.Second
	// idle is the number of siblings without items that are remembered.
	idle = 64
)

// put makes an item of an asker; it waits.
func (f *fair[T]) put(who lm.Asker, item T) *share[T] {
	user := f.below(f.below(&f.all, who.Peer), who.User)
	for s := user; s.above != nil; s = s.above {
		if s.items++; s.items == 1 {
			s.begin()
		}
	}
	f.number++
	s := &share[T]{above: user, number: f.number, item: item}
	s.wait()
	return s
}

func (f *fair[T]) below(s *share[T], name string) *share[T] {
	b := s.of[name]
	if b == nil {
		if s.of == nil {
			s.of = map[string]*share[T]{}
		}
		f.number++
		b = &share[T]{above: s, name: name, number: f.number}
		s.of[name] = b
	}
	return b
}

// begin: from now on s asks for time, beside its active siblings.
func (s *share[T]) begin() {
	s.above.active++
	s.had = max(s.had, s.above.now)
}

// wait puts an item into the line of its user, ordered by age.
func (s *share[T]) wait() {
	line := s.above.line
	i, _ := slices.BinarySearchFunc(line, s.number, func(x *share[T], number uint64) int {
		if x.number < number {
			return -1
		}
		return 1
	})
	s.above.line = slices.Insert(line, i, s)
	s.uses(use{waiting: 1})
}

// leave takes an item out of the line.
func (s *share[T]) leave() {
	s.above.line = slices.DeleteFunc(s.above.line, func(x *share[T]) bool { return x == s })
	s.uses(use{waiting: -1})
}

// take gives a waiting item a place.
func (s *share[T]) take() {
	s.leave()
	s.begin()
	s.uses(use{places: 1})
}

// give takes the place away, with all pages.
func (s *share[T]) give() {
	s.above.active--
	s.uses(use{places: -1, pages: -s.use.pages})
}

// uses adds to the use of s and its ancestors.
func (s *share[T]) uses(more use) {
	for ; s != nil; s = s.above {
		s.use.waiting += more.waiting
		s.use.places += more.places
		s.use.pages += more.pages
	}
}

// gone forgets an item that neither waits nor has a place.
func (s *share[T]) gone() {
	for s = s.above; s.above != nil; s = s.above {
		if s.items--; s.items == 0 {
			s.above.active--
			s.above.forget()
		}
	}
}

// forget drops the children without items that have had no more than the others. If
// too many remain, it drops those with the smallest debts.
func (s *share[T]) forget() {
	for len(s.of) > s.active {
		var least *share[T]
		for _, b := range s.of {
			if b.items == 0 && (least == nil || b.had < least.had || b.had == least.had && b.number < least.number) {
				least = b
			}
		}
		if least.had > s.now && len(s.of) <= s.active+idle {
			return
		}
		delete(s.of, least.name)
	}
}

// charge records an item's time. Time beyond memory is not counted against it.
func (s *share[T]) charge(d time.Duration) {
	for ; s.above != nil; s = s.above {
		s.above.now += d / time.Duration(max(1, s.above.active))
		s.had = min(max(s.had, s.above.now-memory)+d, s.above.now+memory)
	}
}

// next returns the item that gets the next place: of the peer with the fewest
// places, among equals of the one that has had the least time, and so on below.
// nil: nothing waits.
func (f *fair[T]) next() *share[T] {
	s := &f.all
	for range 2 {
		var best *share[T]
		for _, b := range s.of {
			if b.use.waiting > 0 && (best == nil || b.use.places < best.use.places || b.use.places == best.use.places && b.less(best)) {
				best = b
			}
		}
		if best == nil {
			return nil
		}
		s = best
	}
	return s.line[0]
}

// less compares two side by side.
func (s *share[T]) less(x *share[T]) bool {
	least := s.above.now - memory
	if a, b := max(s.had, least), max(x.had, least); a != b {
		return a < b
	}
	return s.number < x.number
}

// before reports which of two items goes first in a resource of which all get some.
func (s *share[T]) before(x *share[T]) bool {
	user, other := s.above, x.above
	switch {
	case user.above != other.above:
		return user.above.less(other.above)
	case user != other:
		return user.less(other)
	}
	return s.less(x)
}

// peer returns the peer to which item s belongs.
func (s *share[T]) peer() *share[T] { return s.above.above }

// waiting returns all waiting items, in no particular order.
func (f *fair[T]) waiting() (all []T) {
	for _, peer := range f.all.of {
		for _, user := range peer.of {
			for _, s := range user.line {
				all = append(all, s.item)
			}
		}
	}
	return all
}
