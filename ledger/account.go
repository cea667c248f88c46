package ledger

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"

	"capgpu/gpuerr"
)

// The state word of an account: how many operations are inside, and these flags.
const (
	closed   = 1 << (32 + iota) // no new charges
	detached                    // out of the tree; its parent keeps what it spent
	paused                      // whoever holds Ledger.mu looks at or changes it

	insideMask = 1<<32 - 1
	flagMask   = ^uint64(insideMask)
)

// Account is one holder in the tree. All methods may be called from any goroutine.
type Account struct {
	ledger *Ledger
	parent *Account // nil at the root; never changes
	name   string
	full   string // message of a refusal, made beforehand

	// Children, newest first, guarded by Ledger.mu.
	children, prev, next *Account

	_      [40]byte      // state is written by every operation on a; parent and name are read by those below
	state  atomic.Uint64 // operations inside | flags
	broken atomic.Bool   // a release took more than was charged; Check tells
	counts [NumClasses]count
}

// count is one class of one account, on its own cache line: held is written by
// every charge of everyone below.
type count struct {
	held    atomic.Uint64 // reserved and used, of a and everyone below
	used    atomic.Uint64 // the committed part of held; unused for spent classes
	own     atomic.Uint64 // the part of held charged to a itself
	ownUsed atomic.Uint64 // the committed part of own
	limit   atomic.Uint64
	peak    atomic.Uint64 // highest held at the end of a grant
	_       [16]byte
}

func newAccount(l *Ledger, parent *Account, name string, limits Limits) *Account {
	a := &Account{ledger: l, parent: parent, name: name}
	a.full = name + " is at its limit; release something or ask for a higher limit"
	if parent == nil {
		a.full = name + " is at its limit for all its users; try again later"
	}
	for c, n := range limits {
		a.counts[c].limit.Store(n)
	}
	return a
}

// Name is the name given to New or Child.
func (a *Account) Name() string { return a.name }

// enter announces an operation on a, waiting while a is paused. It returns the
// flags. Whoever entered must not block before leave.
func (a *Account) enter() (flags uint64) {
	state := a.state.Add(1)
	for state&paused != 0 {
		a.leave()
		a.ledger.mu.Lock() // held by whoever paused a
		//lint:ignore SA2001 waiting for its holder is all that is wanted
		a.ledger.mu.Unlock()
		state = a.state.Add(1)
	}
	return state & flagMask
}

func (a *Account) leave() { a.state.Add(^uint64(0)) }

// drain waits until no operation is inside a, which the caller has paused.
// Operations never block, so this is short.
func (a *Account) drain() {
	for a.state.Load()&insideMask != 0 {
		runtime.Gosched()
	}
}

// Reserve charges n of class c to a and every account above it, or to none. The
// refusal is a gpuerr.Quota error with what was asked and what the tightest
// account had; gpuerr.Closed after Close. Reserving nothing gives a zero Receipt.
func (a *Account) Reserve(c Class, n uint64) (Receipt, error) {
	if c >= NumClasses || c.Spent() {
		return Receipt{}, gpuerr.New(gpuerr.Invalid, "class: %s cannot be reserved", c)
	}
	if a.enter()&closed != 0 {
		a.leave()
		return Receipt{}, gpuerr.New(gpuerr.Closed, "%s is closed; open its successor", a.name)
	}
	if n == 0 {
		a.leave()
		return Receipt{}, nil
	}
	// The account itself first, the root last: a request that is refused never
	// shows above the account that refuses it.
	for at := a; at != nil; at = at.parent {
		if room, ok := at.counts[c].take(n); !ok {
			a.undo(c, n, at)
			err := a.refusal(c, n, at, room)
			a.leave()
			return Receipt{}, err
		}
	}
	// Now that it is granted, note the peaks. Whoever is the last to be granted of
	// those that hold something at the same time sees them all here.
	for at := a; at != nil; at = at.parent {
		k := &at.counts[c]
		k.raisePeak(k.held.Load())
	}
	a.counts[c].own.Add(n)
	a.leave()
	return Receipt{account: a, amount: n, class: c, state: reserved}, nil
}

// take adds n to held if the limit allows, and else says how much room there was.
func (k *count) take(n uint64) (room uint64, ok bool) {
	for {
		held := k.held.Load()
		limit := k.limit.Load()
		if held > limit { // the limit was lowered
			return 0, false
		}
		if n > limit-held { // and so held+n never wraps
			return limit - held, false
		}
		if k.held.CompareAndSwap(held, held+n) {
			return 0, true
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

// room is how much more the limit allows.
func (k *count) room() uint64 {
	held, limit := k.held.Load(), k.limit.Load()
	if held >= limit {
		return 0
	}
	return limit - held
}

// undo takes back n of held from a up to, but not including, end. It goes from
// the top down, as Release does: what an account no longer holds, those above it
// must not hold any more either. Otherwise those below could charge it again, and
// the accounts above would show more than the limits below them allow.
func (a *Account) undo(c Class, n uint64, end *Account) {
	if a == end {
		return
	}
	if a.parent != nil {
		a.parent.undo(c, n, end)
	}
	a.giveBack(&a.counts[c].held, n)
}

// giveBack subtracts n, but never below zero: that would be a receipt released
// through a copy, and Check tells of it.
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

// refusal names the tightest account on the way up. at refused, having had room.
func (a *Account) refusal(c Class, asked uint64, at *Account, room uint64) *gpuerr.Error {
	for b := a; b != nil; b = b.parent {
		if r := b.counts[c].room(); r < room {
			at, room = b, r
		}
	}
	err := gpuerr.Refused(c.String(), asked, room)
	err.Msg = at.full
	return err
}

// Spend records consumption of n that has already happened: it is added to a and
// every account above it, past the limit too, also when a is closed. Once an
// account is over its limit Spend answers gpuerr.Quota, and nothing more should
// be started. An n that the root could not add without wrapping is
// gpuerr.Invalid and changes nothing.
func (a *Account) Spend(c Class, n uint64) error {
	if c >= NumClasses || !c.Spent() {
		return gpuerr.New(gpuerr.Invalid, "class: %s cannot be spent; reserve it", c)
	}
	for a.enter()&detached != 0 { // closed while its last work ran
		a.leave()
		a = a.parent
	}
	defer a.leave()
	// The root holds at least what each account below it does: if it does not
	// wrap, none does.
	root := &a.ledger.root.counts[c]
	for {
		held := root.held.Load()
		if n > Unlimited-held {
			return gpuerr.New(gpuerr.Invalid, "amount: %d of %s is more than can be counted", n, c)
		}
		if root.held.CompareAndSwap(held, held+n) {
			root.raisePeak(held + n)
			break
		}
	}
	for at := a; at.parent != nil; at = at.parent {
		at.counts[c].raisePeak(at.counts[c].held.Add(n))
	}
	a.counts[c].own.Add(n)
	for at := a; at != nil; at = at.parent {
		if k := &at.counts[c]; k.held.Load() > k.limit.Load() {
			return a.refusal(c, n, at, 0)
		}
	}
	return nil
}

// CanSpend is nil while a and every account above it is below its limit, and
// gpuerr.Quota once one is not.
func (a *Account) CanSpend(c Class) error {
	if c >= NumClasses || !c.Spent() {
		return gpuerr.New(gpuerr.Invalid, "class: %s cannot be spent; reserve it", c)
	}
	for at := a; at != nil; at = at.parent {
		if at.counts[c].room() == 0 {
			return a.refusal(c, 1, at, 0)
		}
	}
	return nil
}

// Available is what could be charged to a right now: the least room on the way
// up, 0 once a is closed.
func (a *Account) Available(c Class) uint64 {
	if c >= NumClasses || a.state.Load()&closed != 0 {
		return 0
	}
	least := uint64(Unlimited)
	for at := a; at != nil; at = at.parent {
		least = min(least, at.counts[c].room())
	}
	return least
}

// Entry is one class of one account, those below it included.
type Entry struct {
	Class    Class
	Reserved uint64
	Used     uint64
	Limit    uint64
	Peak     uint64 // highest Reserved+Used ever
}

// Snapshot reads every class, in order. Each entry's Reserved+Used is an amount
// that was held at some moment of the call; different classes are read at
// different moments.
func (a *Account) Snapshot() []Entry {
	entries := make([]Entry, NumClasses)
	for i := range entries {
		c := Class(i)
		k := &a.counts[c]
		held := k.held.Load()
		used := held
		if !c.Spent() {
			used = min(k.used.Load(), held)
		}
		entries[i] = Entry{Class: c, Reserved: held - used, Used: used, Limit: k.limit.Load(), Peak: max(k.peak.Load(), held)}
	}
	return entries
}

// Zero is nil when nothing is held by a and those below it, and else an error
// that names what is. What was spent does not count.
func (a *Account) Zero() error {
	var left []string
	for _, e := range a.Snapshot() {
		if !e.Class.Spent() && e.Reserved+e.Used != 0 {
			left = append(left, fmt.Sprintf("%s %d (%d of it reserved)", e.Class, e.Reserved+e.Used, e.Reserved))
		}
	}
	if left == nil {
		return nil
	}
	return gpuerr.New(gpuerr.Internal, "%s still holds %s", a.name, strings.Join(left, ", "))
}
