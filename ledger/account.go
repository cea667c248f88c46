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
	detached                    // out of the tree; its parent keeps its spending
	paused                      // the holder of Ledger.mu looks at or changes it

	insideMask = 1<<32 - 1
	flagMask   = ^uint64(insideMask)
)

// Account is one holder in the tree. All methods may be called from any goroutine.
type Account struct {
	ledger *Ledger
	parent *Account // nil at the root; never changes
	name   string
	full   string // message of a refusal, made beforehand
	idle   *pool  // of the account below the root that a is or is under; never changes

	// Children, newest first, guarded by Ledger.mu.
	children, prev, next *Account

	_      [32]byte      // state is written by every operation on a; parent and name are read by those below
	state  atomic.Uint64 // operations inside | flags
	broken atomic.Bool   // a release took more than was charged; Check reports it
	counts [NumClasses]count
}

// count is one class of one account, on its own cache line: held is written by
// every charge of everyone below.
type count struct {
	held    atomic.Uint64 // reserved and used, of a and all accounts below; with their idle units
	used    atomic.Uint64 // the committed part of held; unused for spent classes
	own     atomic.Uint64 // the part of held charged to a itself, or idle there
	ownUsed atomic.Uint64 // the committed part of own
	limit   atomic.Uint64
	peak    atomic.Uint64 // highest held at the end of a grant; unused for spent classes
	warm    atomic.Uint64 // warm stashes of a and everyone below | how many ever became warm
	_       [8]byte
}

func newAccount(l *Ledger, parent *Account, name string, limits Limits) *Account {
	a := &Account{ledger: l, parent: parent, name: name}
	switch {
	case parent == nil || parent.parent == nil:
		a.idle = &pool{}
	default:
		a.idle = parent.idle
	}

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

// enter announces an operation on a, waiting while a is paused. It returns the flags. A
// goroutine that entered must not block before leave.
func (a *Account) enter() (flags uint64) {
	state := a.state.Add(1)
	for state&paused != 0 {
		a.leave()
		a.ledger.mu.Lock() // held by the goroutine that paused a
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

// room is how much more the limit allows; more than this if something is idle.
func (k *count) room() uint64 {
	held, limit := k.held.Load(), k.limit.Load()
	if held >= limit {
		return 0
	}
	return limit - held
}

// tightest is the account with the least room on the way up from a, and its room,
// if that is less than room, which at has.
func (a *Account) tightest(c Class, at *Account, room uint64) (*Account, uint64) {
	for b := a; b != nil && room > 0; b = b.parent {
		if r := b.counts[c].room(); r < room {
			at, room = b, r
		}
	}
	return at, room
}

// Available returns how much could be charged to a right now: the least room on the way up, 0
// once a is closed.
func (a *Account) Available(c Class) uint64 {
	if c >= NumClasses {
		return 0
	}
	for a.state.Load()&closed == 0 {
		at, room := a.tightest(c, a, Unlimited)
		if !at.counts[c].anyWarm() {
			return room
		}
		at.recall(c)
	}
	return 0
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
		a.exactly(c, func(k *count) { entries[i] = k.entry(c) })
	}
	return entries
}

func (k *count) entry(c Class) Entry {
	held := k.held.Load()
	if c.Spent() {
		return Entry{Class: c, Used: held, Limit: k.limit.Load(), Peak: held}
	}
	used := min(k.used.Load(), held)
	return Entry{Class: c, Reserved: held - used, Used: used, Limit: k.limit.Load(), Peak: max(k.peak.Load(), held)}
}

// Zero returns nil when a and the accounts below it hold nothing, and else an error that
// names what they hold. Spent units do not count.
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
