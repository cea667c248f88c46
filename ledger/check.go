package ledger

import (
	"errors"
	"fmt"
)

// Check verifies every invariant of the whole tree and names each account and
// class that breaks one: what an account holds is its own charges plus what its
// children hold, for reserved and used alike; nothing was ever held above its
// peak; nothing was released that was not charged; a closed account admits
// nothing below it; the tree is linked both ways. It is exact while others
// charge: they wait for it.
func (l *Ledger) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.root.pauseTreeLocked()
	defer l.root.resumeTreeLocked()
	var wrong []error
	l.root.eachLocked(func(a *Account) { wrong = append(wrong, a.checkLocked()...) })
	return errors.Join(wrong...)
}

func (a *Account) checkLocked() (wrong []error) {
	bad := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("ledger: account %q: %s", a.name, fmt.Sprintf(format, args...)))
	}
	if a.broken.Load() {
		bad("more was released than had been charged: a receipt was copied")
	}
	// Operations that come while the tree is paused count themselves inside for a
	// moment, before they see it and wait.
	state := a.state.Load() & flagMask
	if state&detached != 0 {
		bad("in the tree with state %#x", state)
	}
	var prev *Account
	for child := a.children; child != nil; child = child.next {
		if child.prev != prev || child.parent != a || child.ledger != a.ledger {
			bad("account %q below it is linked wrongly", child.name)
		}
		if state&closed != 0 && child.state.Load()&closed == 0 {
			bad("it is closed, but %q below it is open", child.name)
		}
		prev = child
	}
	for c := range NumClasses {
		k := &a.counts[c]
		held, used := k.own.Load(), k.ownUsed.Load()
		if used > held {
			bad("%s: %d committed of %d charged to itself", c, used, held)
		}
		for child := a.children; child != nil; child = child.next {
			below := &child.counts[c]
			if below.held.Load() > Unlimited-held {
				bad("%s: the charges below it wrap", c)
			}
			held += below.held.Load()
			used += below.used.Load()
		}
		if got := k.held.Load(); got != held {
			bad("%s: holds %d, but its own charges and its children's are %d", c, got, held)
		}
		if got := k.used.Load(); got != used {
			bad("%s: uses %d, but its own charges and its children's are %d", c, got, used)
		}
		if used > held {
			bad("%s: %d used of %d held", c, used, held)
		}
		if k.peak.Load() < held {
			bad("%s: holds %d, above its peak of %d", c, held, k.peak.Load())
		}
	}
	return wrong
}
