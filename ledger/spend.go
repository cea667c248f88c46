package ledger

import "capgpu/gpuerr"

// Spend records consumption of n that has already happened: it is added to a and
// every account above it, past the limit too, also when a is closed. Once an
// account is over its limit Spend answers gpuerr.Quota, and nothing more should
// be started. An n that the root could not add without wrapping is
// gpuerr.Invalid and changes nothing.
func (a *Account) Spend(c Class, n uint64) error {
	if err := spendable(c); err != nil {
		return err
	}

	for a.enter()&detached != 0 { // closed while its last work ran
		a.leave()
		a = a.parent
	}

	ok, sure := a.add(c, n)
	a.leave()
	if !sure {
		root := a.ledger.root
		root.lockIdle()
		root.recallLocked(c)
		for a.state.Load()&detached != 0 {
			a = a.parent
		}
		ok, _ = a.add(c, n)
		root.unlockIdle()
	}

	if !ok {
		return gpuerr.New(gpuerr.Invalid, "amount: %d of %s is more than can be counted", n, c)
	}

	// Look at all of them, also past the first that is over: while one is, nothing
	// may be idle below it.
	var over *Account
	for at := a; at != nil; at = at.parent {
		if at.counts[c].over() && at.stillIs(c, (*count).over) && over == nil {
			over = at
		}
	}

	if over != nil {
		return a.refusal(c, n, over, 0)
	}

	return nil
}

// CanSpend is nil while a and every account above it is below its limit, and
// gpuerr.Quota once one is not.
func (a *Account) CanSpend(c Class) error {
	if err := spendable(c); err != nil {
		return err
	}
	for at := a; at != nil; at = at.parent {
		if at.counts[c].full() && at.stillIs(c, (*count).full) {
			return a.refusal(c, 1, at, 0)
		}
	}
	return nil
}

func spendable(c Class) error {
	if c >= NumClasses || !c.Spent() {
		return gpuerr.New(gpuerr.Invalid, "class: %s cannot be spent; reserve it", c)
	}
	return nil
}

func (k *count) over() bool { return k.held.Load() > k.limit.Load() }
func (k *count) full() bool { return k.room() == 0 }

// stillIs checks a condition of a again when nothing is idle below it.
func (a *Account) stillIs(c Class, so func(*count) bool) (yes bool) {
	a.exactly(c, func(k *count) { yes = so(k) })
	return yes
}

// add adds n to a and every account above it. It answers no if that would wrap,
// and is not sure of it where some units are idle. The caller has entered a, or
// holds the lock of every pool.
func (a *Account) add(c Class, n uint64) (ok, sure bool) {
	// The root holds at least what each account below it does: if it does not
	// wrap, none does.
	root := &a.ledger.root.counts[c]
	for {
		warm := root.warm.Load()
		held := root.held.Load()
		if n > Unlimited-held {
			return false, warm&warmMask == 0 && root.warm.Load() == warm
		}
		if root.held.CompareAndSwap(held, held+n) {
			break
		}
	}

	for at := a; at.parent != nil; at = at.parent {
		at.counts[c].held.Add(n)
	}

	a.counts[c].own.Add(n)
	return true, true
}

// prepay charges n to a and every account above it, or to none if one has no room
// for it: the root first, as add does.
func (a *Account) prepay(c Class, n uint64) bool {
	if !a.prepayHeld(c, n) {
		return false
	}
	a.counts[c].own.Add(n)
	return true
}

func (a *Account) prepayHeld(c Class, n uint64) bool {
	if a.parent != nil && !a.parent.prepayHeld(c, n) {
		return false
	}
	k := &a.counts[c]
	for {
		held, limit := k.held.Load(), k.limit.Load()
		if held > limit || n > limit-held {
			a.parent.unspendHeld(c, n)
			return false
		}
		if k.held.CompareAndSwap(held, held+n) {
			return true
		}
	}
}

// unspend takes back prepaid units: the root last, since it must never hold less than those
// below.
func (a *Account) unspend(c Class, n uint64) {
	a.giveBack(&a.counts[c].own, n)
	a.unspendHeld(c, n)
}

func (a *Account) unspendHeld(c Class, n uint64) {
	for at := a; at != nil; at = at.parent {
		at.giveBack(&at.counts[c].held, n)
	}
}
