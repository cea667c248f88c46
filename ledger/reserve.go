package ledger

import (
	"sync/atomic"

	"capgpu/gpuerr"
)

// Reserve charges n of class c to a and every account above it, or to none. The refusal is a
// gpuerr.Quota error with the requested amount and the room of the tightest account;
// gpuerr.Closed after Close. Reserving nothing gives a zero Receipt.
func (a *Account) Reserve(c Class, n uint64) (Receipt, error) {
	if err := a.reserve(c, n); err != nil || n == 0 {
		return Receipt{}, err
	}
	return Receipt{account: a, amount: n, class: c, state: reserved}, nil
}

func (a *Account) reserve(c Class, n uint64) error {
	if c >= NumClasses || c.Spent() {
		return gpuerr.New(gpuerr.Invalid, "class: %s cannot be reserved", c)
	}

	if a.enter()&closed != 0 {
		a.leave()
		return a.closedError()
	}

	at, room, sure := a.charge(c, n)
	a.leave()
	switch {
	case at == nil:
		return nil
	case sure:
		return a.refusal(c, n, at, room)
	}

	return a.reserveRecalling(c, n, at)
}

// reserveRecalling reserves when idle units stand in the way at the account at:
// it gives them back, looks again, and keeps them from becoming idle again until
// it knows.
func (a *Account) reserveRecalling(c Class, n uint64, at *Account) error {
	at.lockIdle()
	locked := at // everything below it
	defer func() { locked.unlockIdle() }()
	for {
		if a.state.Load()&closed != 0 {
			return a.closedError()
		}
		at.recallLocked(c)
		next, room, sure := a.charge(c, n)
		if next == nil {
			return nil
		}
		if sure {
			return a.refusal(c, n, next, room)
		}
		if at = next; at.parent == nil && locked.parent != nil {
			locked.unlockIdle()
			locked = at
			locked.lockIdle()
		}
	}
}

func (a *Account) closedError() error {
	return gpuerr.New(gpuerr.Closed, "%s is closed; open its successor", a.name)
}

// charge adds n to a and every account above it, and answers nil, or to none, and
// answers the tightest account and the room that it had. It is not sure where
// units idle below that account may be in the way. The caller has entered a, or
// holds the lock of its pool.
func (a *Account) charge(c Class, n uint64) (at *Account, room uint64, sure bool) {
	if n == 0 {
		return nil, 0, true
	}

	// The account itself first, the root last: a request that is refused never
	// shows above the account that refuses it.
	for at := a; at != nil; at = at.parent {
		room, ok, sure := at.counts[c].take(n)
		if ok {
			continue
		}
		a.undo(c, n, at)
		if tight, least := a.tightest(c, at, room); sure && tight != at {
			return tight, least, !tight.counts[c].anyWarm()
		}
		return at, room, sure
	}

	// Now that it is granted, note the peaks. The last granted one of the charges that exist
	// at the same time sees them all here.
	for at := a; at != nil; at = at.parent {
		k := &at.counts[c]
		k.raisePeak(k.held.Load())
	}

	a.counts[c].own.Add(n)
	return nil, 0, true
}

// take adds n to held if the limit allows, and else returns how much room there was. It is
// not sure of that while units may be idle. It does not take past the peak while some are,
// either: the peak would count them.
func (k *count) take(n uint64) (room uint64, ok, sure bool) {
	for {
		warm := k.warm.Load()
		held := k.held.Load()
		limit := k.limit.Load()
		if held > limit || n > limit-held { // and so held+n never wraps
			if held < limit {
				room = limit - held
			}
			// None was warm between these two looks, so none of held was idle.
			return room, false, warm&warmMask == 0 && k.warm.Load() == warm
		}
		if held+n > k.peak.Load() && k.anyWarm() {
			return 0, false, false
		}
		if k.held.CompareAndSwap(held, held+n) {
			return 0, true, true
		}
	}
}

func (k *count) raisePeak(held uint64) {
	for {
		peak := k.peak.Load()
		if held <= peak || k.peak.CompareAndSwap(peak, held) {
			return
		}
	}
}

// release takes back n of a's charges. The caller has entered a, or holds the lock of its
// pool.
func (a *Account) release(c Class, n uint64) {
	a.giveBack(&a.counts[c].own, n)
	a.undo(c, n, nil)
}

// undo takes back n of held from a up to, but not including, end. It goes from the top down,
// as Release does: the accounts above must not hold more than the sum below. Otherwise
// accounts below could charge it again, and the accounts above would show more than the
// limits below them allow.
func (a *Account) undo(c Class, n uint64, end *Account) {
	if a == end {
		return
	}
	if a.parent != nil {
		a.parent.undo(c, n, end)
	}
	a.giveBack(&a.counts[c].held, n)
}

// giveBack subtracts n, but never below zero: that would be a receipt released through a
// copy, and Check reports it.
func (a *Account) giveBack(v *atomic.Uint64, n uint64) {
	for {
		old := v.Load()
		left := old - n
		if n > old {
			left = 0
			a.broken.Store(true)
		}
		if v.CompareAndSwap(old, left) {
			return
		}
	}
}

// refusal says that at, the tightest account, had this much room.
func (a *Account) refusal(c Class, asked uint64, at *Account, room uint64) *gpuerr.Error {
	err := gpuerr.Refused(c.String(), asked, room)
	err.Msg = at.full
	return err
}
