package ledger

import "sync"

// Receipts are charges that end one by one, or all together. The zero value has none.
type Receipts struct {
	mu sync.Mutex
	// +checklocks:mu
	open map[*Receipt]struct{}
}

// Add takes charge in.
func (l *Receipts) Add(charge *Receipt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[*Receipt]struct{}{}
	}
	l.open[charge] = struct{}{}
}

// Release ends one of the charges. It may have ended.
func (l *Receipts) Release(charge *Receipt) {
	l.mu.Lock()
	delete(l.open, charge)
	l.mu.Unlock()
	charge.Release() // once: the first of the two callers
}

// ReleaseAll ends all charges. None is added any more.
func (l *Receipts) ReleaseAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for charge := range l.open {
		charge.Release()
	}
	l.open = nil
}
