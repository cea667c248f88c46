package server

import (
	"slices"
	"time"

	"capgpu/model/lm"
)

// fair divides time among those who ask: first among peers, then among the users of a peer,
// then among what one user asks for. It is a tree of shares:
//
//	all ── peer ── user ── item (a request, or a text to tokenize)
//
// That share goes first which has had less time than those beside it (charge). One that
// comes, or comes back, begins where the others are (now), so that it has no right to what
// it did not ask for; what it had more than its part is kept when it goes, for at most idle
// shares, and no more than memory of it.
//
// The zero value is ready. The lock is that of its owner.
type fair[T any] struct {
	all    share[T]
	number uint64
}

// share is what one has had, and has.
type share[T any] struct {
	above  *share[T] // nil: all
	name   string
	number uint64 // in the order in which they came
	item   T
	of     map[string]*share[T] // by name; of all and of peers
	line   []*share[T]          // of a user: its items that wait, the oldest first

	items  int           // that were put and are not gone yet
	active int           // of those below: that ask for time
	had    time.Duration // as all beside it count it
	now    time.Duration // what those below have had, on average
	use    use
}

// use is what one has, with all below it.
type use struct{ waiting, places, pages int }

const (
	// memory is how much more or less than the others one may have had, for it to count.
	memory = time.Second
	// idle is how many shares beside each other are remembered of which nobody asks.
	idle = 64
)

// put makes an item of who asks, which waits.
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

// begin: s asks for time from now on, beside those that do.
func (s *share[T]) begin() {
	s.above.active++
	s.had = max(s.had, s.above.now)
}

// wait puts an item into the line of its user, where its age says.
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

// take gives an item that waits a place.
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

// uses adds to what s has.
func (s *share[T]) uses(more use) {
	for ; s != nil; s = s.above {
		s.use.waiting += more.waiting
		s.use.places += more.places
		s.use.pages += more.pages
	}
}

// gone forgets an item, which neither waits nor has a place.
func (s *share[T]) gone() {
	for s = s.above; s.above != nil; s = s.above {
		if s.items--; s.items == 0 {
			s.above.active--
			s.above.forget()
		}
	}
}

// forget forgets those below of which nobody asks: that have had no more than the others,
// and of the rest those with the least, so that only so many are left.
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

// charge says that an item had time. What is beyond memory is not held against anybody.
func (s *share[T]) charge(d time.Duration) {
	for ; s.above != nil; s = s.above {
		s.above.now += d / time.Duration(max(1, s.above.active))
		s.had = min(max(s.had, s.above.now-memory)+d, s.above.now+memory)
	}
}

// next is the item whose turn it is to have a place: of the peer with the fewest, among
// equals of the one that has had the least; and so on below. nil: nobody waits.
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

// before says which of two items goes first in what all of them get some of.
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

// peer is whose item s is.
func (s *share[T]) peer() *share[T] { return s.above.above }

// waiting are all that wait, in no order that matters.
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
