// Package ledger is the one record of charges: which account holds how much.
//
// A Ledger is a tree of accounts: the device at the root, below it tenants,
// sessions, and restricted sessions. Every charge is made to one account and, in
// the same step, to every account above it; it is granted only if all of them
// have room, and otherwise none is changed.
//
//	reserve ──► commit ──► release        Reserve, Receipt.Commit, Receipt.Release
//	   └──────────────────────┘
//	spend                                 Spend: device time, audit bytes; never comes back
//
// Invariants at every moment, for every account and class:
//
//   - The charge never exceeds the limit that was in force when it was granted;
//     arithmetic is checked, so no sum ever wraps.
//   - No refused request touches the account that refused it or one above, and a
//     release is seen above before it is seen below. So an account never shows
//     more than the limits below it allow, and a refusal or a release of one tenant
//     never makes another's request fail.
//     (Within one tenant, a request may be refused because of another that is
//     itself being refused at that instant by an account further up.)
//   - SetLimit is exact: once it has returned, every new charge is held to the
//     new limit. Close is too: once it has returned, no new charge is granted.
//
// Reserve, Commit, Release and Spend allocate nothing unless they refuse, and take
// no lock unless idle units are in their way. Each announces itself in its own
// account's state word; Check, a lower SetLimit, and Close hold Ledger.mu, pause
// the accounts they concern, wait for those inside to leave, and look at a tree
// that stands still. So Check is exact also while others charge, which wait for it.
// It takes about half a microsecond per account.
//
// A Lease takes and gives units, and a Meter spends, in one word of its own: ten times faster
// than the walk up the tree. The difference is not observable, since idle units are recalled
// before a request is refused, before a peak rises, and before a count is read out (see
// stash). A refused request looks for idle units only below the account that refuses it, and
// not at all if there are none. So a tenant that is refused a million times a second at its
// own limit costs other tenants no more than one that is granted as often. At the device's
// limit it costs them their leases: they are recalled, and for a while go to the tree.
//
// Locks: Ledger.mu, then the pools of idle units in the order of the tree. Neither
// is waited for by anyone inside an account.
//
// Clients are not trusted with anything here: names and amounts come from the core. A closed
// account is taken out of the tree; its spending stays on record in its parent.
package ledger

import (
	"sync"

	"capgpu/gpuerr"
)

// Ledger is one tree of accounts.
type Ledger struct {
	// mu guards the shape of the tree and is held while accounts are paused, or the
	// idle units of all tenants are recalled. It is never held while anything outside
	// this package runs.
	mu   sync.Mutex
	root *Account
}

// New makes a ledger with its root account.
func New(name string, limits Limits) *Ledger {
	l := &Ledger{}
	l.root = newAccount(l, nil, name, limits)
	return l
}

// Root is the account at the top.
func (l *Ledger) Root() *Account { return l.root }

// Child opens an account below a. Charges to it count against a as well.
func (a *Account) Child(name string, limits Limits) (*Account, error) {
	l := a.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.state.Load()&closed != 0 {
		return nil, gpuerr.New(gpuerr.Closed, "%s is closed; open its successor", a.name)
	}
	child := newAccount(l, a, name, limits)
	child.next = a.children
	if a.children != nil {
		a.children.prev = child
	}
	a.children = child
	return child, nil
}

// SetLimit changes a limit while others charge. Lowering it below the current charges takes
// nothing back; it blocks new charges. Setting the current value returns at once.
func (a *Account) SetLimit(c Class, n uint64) {
	if c >= NumClasses || a.counts[c].limit.Load() == n {
		return
	}

	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	k := &a.counts[c]
	if n >= k.limit.Load() { // refused meanwhile means refused before
		k.limit.Store(n)
		return
	}

	a.lockPoolsLocked()
	defer a.unlockPoolsLocked()
	a.pauseTreeLocked()
	defer a.resumeTreeLocked()
	k.limit.Store(n)
	if k.held.Load() > n {
		a.recallLocked(c)
	}
}

// Close closes a to new charges and, if it holds nothing any more, takes it out of the tree.
// Otherwise it returns an error that names what is left; call Close again when that was
// released. Accounts below a are closed with it, but stay until they are closed themselves.
// The spending of a stays on record above it. Closing the root only closes it.
func (a *Account) Close() error {
	l := a.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.state.Load()&detached != 0 {
		return nil
	}

	a.lockPoolsLocked()
	defer a.unlockPoolsLocked()
	a.pauseTreeLocked()
	defer a.resumeTreeLocked()
	a.eachLocked(func(b *Account) { b.state.Or(closed) })
	for c := range NumClasses {
		a.recallLocked(c)
	}

	if err := a.Zero(); err != nil {
		return err
	}
	if a.children != nil {
		return gpuerr.New(gpuerr.Internal, "%s still has open accounts below it, one of them %s", a.name, a.children.name)
	}
	if a.parent == nil {
		return nil
	}

	for c := range a.counts {
		// Only spent classes are not zero. The parent already counts the amount as
		// its child's; from now on it is its own.
		a.parent.counts[c].own.Add(a.counts[c].own.Load())
	}

	a.state.Or(detached)
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		a.parent.children = a.next
	}

	if a.next != nil {
		a.next.prev = a.prev
	}

	a.prev, a.next = nil, nil
	return nil
}

// pauseTreeLocked stops every operation on a and the accounts below it. The
// caller holds Ledger.mu until resumeTreeLocked.
func (a *Account) pauseTreeLocked() {
	a.eachLocked(func(b *Account) { b.state.Or(paused) })
	a.eachLocked((*Account).drain)
}

func (a *Account) resumeTreeLocked() {
	a.eachLocked(func(b *Account) { b.state.And(^uint64(paused)) })
}

// eachLocked visits a and everything below it, parents first.
func (a *Account) eachLocked(visit func(*Account)) {
	visit(a)
	for child := a.children; child != nil; child = child.next {
		child.eachLocked(visit)
	}
}
