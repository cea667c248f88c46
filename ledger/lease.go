package ledger

// Lease charges units of one class to one account, many times a second, without
// walking the tree each time. What it answers, and what the books show, is what
// Reserve and Release would: a unit is charged from Take to Give, and not a moment
// longer. Its methods may be called from any goroutine.
type Lease struct {
	account *Account
	class   Class
}

// Lease makes a lease of class c, which holds nothing yet.
func (a *Account) Lease(c Class) *Lease { return &Lease{account: a, class: c} }

// Take charges n units, or refuses as Reserve does.
func (l *Lease) Take(n uint64) error {
	_, err := l.account.Reserve(l.class, n)
	return err
}

// Give gives back n of the units taken.
func (l *Lease) Give(n uint64) {
	if n != 0 {
		r := Receipt{account: l.account, amount: n, class: l.class, state: reserved}
		r.Release()
	}
}

// Close ends the lease. What was taken must be given all the same, before or after.
func (l *Lease) Close() {}

// Meter records what is spent of one class by one account, many times a second.
// Its methods may be called from any goroutine.
type Meter struct {
	account *Account
	class   Class
}

// Meter makes a meter of class c.
func (a *Account) Meter(c Class) *Meter { return &Meter{account: a, class: c} }

// Spend is Account.Spend.
func (m *Meter) Spend(n uint64) error { return m.account.Spend(m.class, n) }

// Close ends the meter. What was spent stays spent.
func (m *Meter) Close() {}
