package ledger

import (
	"errors"
	"fmt"
)

// Check verifies every invariant of the whole tree and names each account and class that
// breaks one: an account holds its own charges plus those of its children, for reserved and
// used alike; no count was ever above its peak; nothing was released that was not charged; a
// closed account admits nothing below it; the tree is linked both ways. It is exact while
// other goroutines charge: they wait for it.
func (l *Ledger) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.root.lockPoolsLocked()
	defer l.root.unlockPoolsLocked()
	l.root.pauseTreeLocked()
	defer l.root.resumeTreeLocked()
	var wrong []error
	warm := l.root.stashesLocked()
	l.root.eachLocked(func(a *Account) { wrong = append(wrong, a.checkLocked(warm[a])...) })
	return errors.Join(wrong...)
}

// stashesLocked lists the warm stashes by their account.
func (a *Account) stashesLocked() map[*Account][]*stash {
	warm := map[*Account][]*stash{}
	a.eachPoolLocked(func(p *pool) {
		for _, first := range p.warm {
			for s := first; s != nil; s = s.next {
				warm[s.account] = append(warm[s.account], s)
			}
		}
	})
	return warm
}

func (a *Account) checkLocked(warm []*stash) (wrong []error) {
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
		stashes, idle := uint64(0), used
		for _, s := range warm {
			if s.class == c {
				stashes++
				idle += s.word.Load() & idleMask
			}
		}
		if idle > held {
			bad("%s: %d idle or committed of %d charged to itself", c, idle, held)
		}
		for child := a.children; child != nil; child = child.next {
			below := &child.counts[c]
			if below.held.Load() > Unlimited-held {
				bad("%s: the charges below it wrap", c)
			}
			held += below.held.Load()
			used += below.used.Load()
			stashes += below.warm.Load() & warmMask
		}
		if got := k.warm.Load() & warmMask; got != stashes {
			bad("%s: counts %d warm stashes of %d", c, got, stashes)
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
		if c.Spent() {
			continue
		}
		if k.peak.Load() < held {
			bad("%s: holds %d, above its peak of %d", c, held, k.peak.Load())
		}
		if stashes > 0 && k.limit.Load() < held {
			bad("%s: holds %d, idle units included, above its limit of %d", c, held, k.limit.Load())
		}
	}

	return wrong
}
