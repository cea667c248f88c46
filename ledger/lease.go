package ledger

// Lease charges units of one class to one account, many times a second, without walking the
// tree each time. Its answers, and the counts of the ledger, are those of Reserve and
// Release: a unit is charged from Take to Give, and not a moment longer. Its methods may be
// called from any goroutine.
type Lease struct{ stash }

// Lease makes a lease of class c, which holds nothing yet.
func (a *Account) Lease(c Class) *Lease {
	return &Lease{stash{account: a, class: c}}
}

// Take charges n units, or refuses as Reserve does.
func (l *Lease) Take(n uint64) error {
	w := l.word.Load()
	if n-1 < w&idleMask && l.word.CompareAndSwap(w, w+n*takeOne) {
		return nil
	}
	return l.takeSlow(n)
}

func (l *Lease) takeSlow(n uint64) error {
	if l.take(n) {
		return nil
	}
	return l.account.reserve(l.class, n)
}

// Give gives back n of the units taken, also after Close.
func (l *Lease) Give(n uint64) {
	w := l.word.Load()
	if n <= w/spareOne && l.word.CompareAndSwap(w, w-n*takeOne) {
		return
	}
	l.giveSlow(n)
}

func (l *Lease) giveSlow(n uint64) {
	a, c := l.account, l.class
	if n == 0 || c >= NumClasses || c.Spent() || l.give(n) { // of such a class nothing was taken
		return
	}
	if l.word.Load() == 0 && !l.cooling() && l.keep(n) {
		return
	}
	a.enter()
	a.release(c, n)
	a.leave()
}

// keep makes l warm with n idle units, unless that is too many.
func (l *Lease) keep(n uint64) bool {
	a, c := l.account, l.class
	a.idle.mu.Lock()
	defer a.idle.mu.Unlock()
	if l.warm || l.ended || a.state.Load()&closed != 0 {
		return false
	}

	most := uint64(maxIdle)
	for at := a; at != nil; at = at.parent {
		k := &at.counts[c]
		limit := k.limit.Load()
		if most = min(most, max(limit/idleShare, 1)); n > most || k.held.Load() > limit {
			l.cool.Store(coolOff)
			return false
		}
	}

	l.warmLocked()
	l.word.Store(n + (most-n)*spareOne)
	return true
}

// Close ends the lease and returns its idle units. Units that were taken must still be given,
// before or after.
func (l *Lease) Close() {
	if l.class < NumClasses {
		l.end()
	}
}

// Meter records the spending of one account in one class, many times a second, without
// walking the tree each time. Its answers, and the counts of the ledger, are those of
// Account.Spend. Its methods may be called from any goroutine.
type Meter struct{ stash }

// Meter makes a meter of class c.
func (a *Account) Meter(c Class) *Meter {
	return &Meter{stash{account: a, class: c}}
}

// Spend is Account.Spend.
func (m *Meter) Spend(n uint64) error {
	w := m.word.Load()
	if n-1 < w&idleMask && m.word.CompareAndSwap(w, w+n*takeOne) {
		return nil
	}
	return m.spendSlow(n)
}

func (m *Meter) spendSlow(n uint64) error {
	if m.take(n) {
		return nil
	}
	if err := m.account.Spend(m.class, n); err != nil {
		return err
	}
	if n != 0 && !m.cooling() {
		m.chargeAhead(n)
	}
	return nil
}

// chargeAhead makes m warm, or warm for longer: it charges many times n in advance.
func (m *Meter) chargeAhead(n uint64) {
	a, c := m.account, m.class
	if n > idleMask/meterAhead/2 {
		return
	}

	a.idle.mu.Lock()
	defer a.idle.mu.Unlock()
	if m.ended || a.state.Load()&closed != 0 || m.word.Load()&idleMask >= n {
		return
	}
	if !m.warm {
		m.warmLocked()
	}

	// From here on a goroutine that finds these units in its way waits for the pool.
	ahead := n * meterAhead
	for at := a; at != nil; at = at.parent {
		ahead = min(ahead, at.counts[c].room()/idleShare)
	}

	if ahead < n || !a.prepay(c, ahead) {
		m.recallLocked()
		return
	}

	for { // fewer than n are idle: they stay, and fit
		w := m.word.Load()
		if m.word.CompareAndSwap(w, w&idleMask+ahead) {
			return
		}
	}
}

// Close ends the meter. Spent units stay spent.
func (m *Meter) Close() {
	if m.class < NumClasses {
		m.end()
	}
}
