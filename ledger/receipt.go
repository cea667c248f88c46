package ledger

import (
	"runtime"
	"sync/atomic"
)

// The states of a receipt. released is 0, so that a zero Receipt is a no-op.
const (
	released uint32 = iota
	reserved
	used
	moving // one call is changing the ledger
)

// Receipt is one charge. It is a value that has one owner: assigning it moves it,
// and the variable it was moved from must not be used any more. Through one
// variable, Commit and Release take effect at most once each, also when called at
// the same time; through two copies the ledger cannot tell the second release
// from another's charge (it never goes below zero, and Check reports it when it
// would have).
type Receipt struct {
	account *Account
	amount  uint64
	class   Class
	// +checkatomic
	state uint32
}

// Amount is the amount that is still charged.
func (r *Receipt) Amount() uint64 {
	if atomic.LoadUint32(&r.state) == released {
		return 0
	}
	return r.amount
}

// Commit turns the reservation into use. It does nothing after the first time and
// after Release.
func (r *Receipt) Commit() {
	if !atomic.CompareAndSwapUint32(&r.state, reserved, moving) {
		return
	}
	a := r.account
	a.enter()
	for at := a; at != nil; at = at.parent {
		at.counts[r.class].used.Add(r.amount)
	}
	a.counts[r.class].ownUsed.Add(r.amount)
	a.leave()
	atomic.StoreUint32(&r.state, used)
}

// Release returns the charge to every account it was made to.
func (r *Receipt) Release() {
	var was uint32
	for {
		was = atomic.LoadUint32(&r.state)
		if was == released {
			return
		}
		if was != moving && atomic.CompareAndSwapUint32(&r.state, was, released) {
			break
		}
		runtime.Gosched() // Commit is at work in another goroutine
	}

	a, c := r.account, r.class
	a.enter()
	if was == used {
		a.giveBack(&a.counts[c].ownUsed, r.amount)
		for at := a; at != nil; at = at.parent {
			at.giveBack(&at.counts[c].used, r.amount)
		}
	}

	a.release(c, r.amount)
	a.leave()
}
