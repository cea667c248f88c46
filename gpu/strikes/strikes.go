// Package strikes counts what a tenant did to the device, within a window of time.
package strikes

import (
	"slices"
	"sync"
	"time"
)

// Policy says when somebody that keeps hanging the device is banned: after Limit strikes within
// Window, for Ban.
type Policy struct {
	Limit  int
	Window time.Duration
	Ban    time.Duration
}

// Strikes are those of one tenant or session. The zero value has none.
type Strikes struct {
	mu sync.Mutex
	// recent are those within the window, oldest first.
	// +checklocks:mu
	recent []time.Time
	// +checklocks:mu
	count uint64 // ever
}

// Add adds one, and reports whether there are too many now; those within the window are
// forgotten then.
func (k *Strikes) Add(p Policy) (tooMany bool) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count++
	for len(k.recent) > 0 && now.Sub(k.recent[0]) > p.Window {
		k.recent = k.recent[1:]
	}

	k.recent = append(k.recent, now)
	if tooMany = len(k.recent) >= p.Limit; tooMany {
		k.recent = nil
	}
	return tooMany
}

// Total is how many there ever were.
func (k *Strikes) Total() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.count
}

// Snapshot is the strikes that still count, oldest first, and how many there were.
type Snapshot struct {
	Recent []time.Time `json:",omitempty"`
	Count  uint64
}

// Snapshot tells the strikes.
func (k *Strikes) Snapshot() Snapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Snapshot{Recent: slices.Clone(k.recent), Count: k.count}
}

// Restore makes the strikes those of a snapshot.
func (k *Strikes) Restore(s Snapshot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recent, k.count = nil, s.Count
	for _, at := range s.Recent {
		k.recent = append(k.recent, Steady(at))
	}
}

// Steady is a moment of the wall clock, of which the process's own clock is read from here
// on: it does not go back.
func Steady(at time.Time) time.Time { return time.Now().Add(time.Until(at)) }
