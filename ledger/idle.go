package ledger

import (
	"sync"
	"sync/atomic"
)

// idleMask is the part of a stash's word that counts idle units; the rest of the
// word is how many more it may keep. The word is 0 while it is cold, and only then.
const (
	idleMask  = 1<<32 - 1
	spareOne  = 1 << 32
	takeOne   = spareOne - 1 // added, it moves a unit from idle to spare
	warmMask  = 1<<32 - 1    // of count.warm: warm stashes now
	warmEvent = 1<<32 + 1    // one more is warm, and one more became so

	maxIdle    = 256 // units that a lease keeps
	idleShare  = 8   // a lease keeps at most one part in so many of the tightest limit, a meter of the least room
	coolOff    = 64  // trips to the tree after a recall, before it may be warm again
	meterAhead = 256 // how many like the last spend a meter charges ahead
)

// A stash is the charged units of one lease or meter that are not in use: its idle units.
// They are in held of its account and of those above, so all of these ask for them back,
// through their pool, before a request is refused or a count read out:
//
//	cold ── a give, or a top-up ──► warm ── recall, close ──► cold
//
// A cold stash keeps nothing and goes to the tree each time. A warm one takes idle units from
// its own word and gives them back there, under these rules, which make that exact:
//
//   - While a stash is warm, no account above it holds more than its limit, idle units
//     included: taking an idle unit is never past a limit. Operations that would break this
//     (SetLimit, Spend past a limit) recall.
//   - No account holds more returnable units than its peak, idle units included: taking an
//     idle unit never makes a new peak. A charge that would break this recalls first.
//   - A stash becomes warm, and a recall looks, with the pool locked. So between a
//     recall and the unlocking of the pool nothing is idle below that account.
type stash struct {
	word    atomic.Uint64 // idle units | spare
	account *Account
	class   Class
	cool    atomic.Int32

	// Guarded by account.idle.mu.
	warm, ended bool
	prev, next  *stash

	_ [80]byte // nothing else is on the line of word
}

// pool lists the warm stashes of an account just below the root and of all under
// it. The root has one too, for its own.
type pool struct {
	mu   sync.Mutex // after Ledger.mu, before any account is paused
	warm [NumClasses]*stash
	_    [64]byte
}

func (k *count) anyWarm() bool { return k.warm.Load()&warmMask != 0 }

// +checklocksacquire:p.mu
func (p *pool) lock() { p.mu.Lock() }

// +checklocksrelease:p.mu
func (p *pool) unlock() { p.mu.Unlock() }

// lockIdle keeps everything below a as it is: none becomes warm, and none is
// recalled by another. For the root it takes Ledger.mu too.
// +checklocksignore: which locks it takes depends on a.
func (a *Account) lockIdle() {
	if a.parent == nil {
		a.ledger.mu.Lock()
	}
	a.lockPoolsLocked()
}

// +checklocksignore: see lockIdle.
func (a *Account) unlockIdle() {
	a.unlockPoolsLocked()
	if a.parent == nil {
		a.ledger.mu.Unlock()
	}
}

// lockPoolsLocked is lockIdle for a caller that holds Ledger.mu already.
func (a *Account) lockPoolsLocked() {
	a.eachPoolLocked((*pool).lock)
}

func (a *Account) unlockPoolsLocked() {
	a.eachPoolLocked((*pool).unlock)
}

func (a *Account) eachPoolLocked(visit func(*pool)) {
	visit(a.idle)
	if a.parent == nil {
		for child := a.children; child != nil; child = child.next {
			visit(child.idle)
		}
	}
}

// recall gives back the idle units of c below a, and those of a itself.
func (a *Account) recall(c Class) {
	a.lockIdle()
	a.recallLocked(c)
	a.unlockIdle()
}

func (a *Account) recallLocked(c Class) {
	if !a.counts[c].anyWarm() {
		return
	}
	a.eachPoolLocked(func(p *pool) {
		for s := p.warm[c]; s != nil; {
			next := s.next
			if s.account.isOrUnder(a) {
				s.recallLocked()
			}
			s = next
		}
	})
}

func (a *Account) isOrUnder(top *Account) bool {
	for a != nil && a != top {
		a = a.parent
	}
	return a == top
}

// exactly calls look while nothing is idle in c below a; more than once, maybe:
// the last time counts.
func (a *Account) exactly(c Class, look func(*count)) {
	k := &a.counts[c]
	if warm := k.warm.Load(); warm&warmMask == 0 {
		if look(k); k.warm.Load() == warm {
			return
		}
	}
	a.lockIdle()
	a.recallLocked(c)
	look(k)
	a.unlockIdle()
}

// warmLocked puts s on the list. The accounts above say so first: a goroutine that finds idle
// units in its way must know that they may be such.
func (s *stash) warmLocked() {
	for at := s.account; at != nil; at = at.parent {
		at.counts[s.class].warm.Add(warmEvent)
	}
	first := &s.account.idle.warm[s.class]
	s.warm, s.next = true, *first
	if s.next != nil {
		s.next.prev = s
	}
	*first = s
}

// recallLocked makes s cold. Idle units are given back before the accounts say that there are
// none.
func (s *stash) recallLocked() {
	idle := s.word.Swap(0) & idleMask
	if s.class.Spent() {
		s.account.unspend(s.class, idle)
	} else {
		s.account.release(s.class, idle)
	}

	if s.prev != nil {
		s.prev.next = s.next
	} else {
		s.account.idle.warm[s.class] = s.next
	}

	if s.next != nil {
		s.next.prev = s.prev
	}

	s.warm, s.prev, s.next = false, nil, nil
	for at := s.account; at != nil; at = at.parent {
		at.counts[s.class].warm.Add(^uint64(0))
	}

	s.cool.Store(coolOff)
}

// end makes s cold for good.
func (s *stash) end() {
	p := s.account.idle
	p.mu.Lock()
	defer p.mu.Unlock()
	s.ended = true
	if s.warm {
		s.recallLocked()
	}
}

// take takes n of the idle units.
func (s *stash) take(n uint64) bool {
	for {
		w := s.word.Load()
		if n-1 >= w&idleMask { // also for n = 0
			return false
		}
		if s.word.CompareAndSwap(w, w+n*takeOne) {
			return true
		}
	}
}

// give keeps n, if s is warm and may keep them.
func (s *stash) give(n uint64) bool {
	for {
		w := s.word.Load()
		if n > w/spareOne {
			return false
		}
		if s.word.CompareAndSwap(w, w-n*takeOne) {
			return true
		}
	}
}

// cooling counts one trip to the tree, and says whether s must stay cold.
func (s *stash) cooling() bool {
	return s.cool.Load() > 0 && s.cool.Add(-1) >= 0
}
