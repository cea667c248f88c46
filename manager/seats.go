package manager

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"capgpu/gpuerr"
	"capgpu/ledger"
)

// seats are a tenant's connections, by user, charged to its account. If several users may
// connect, a user gets another connection only if it then has at most three times as many as
// are still free (as in model/peers): alone three quarters of all, beside another such user
// three sevenths.
type seats struct {
	mu sync.Mutex
	// +checklocks:mu
	held map[uint32]uint64 // no entry is 0
	// +checklocks:mu
	all uint64 // sum of held
}

// severalUsers reports whether more than one user may connect.
func (t *Tenant) severalUsers() bool {
	return t.AnyUID || slices.ContainsFunc(t.AllowedUIDs, func(uid uint32) bool { return uid != t.AllowedUIDs[0] })
}

// mayTakeLocked reports whether a user with own connections may have one more.
//
// +checklocks:s.mu
func (s *seats) mayTakeLocked(t *Tenant, own uint64) bool {
	return own == 0 || !t.severalUsers() || own+1+3*(s.all+1) <= 3*t.MaxConnections
}

// adviceWithout says what a user without a connection can do.
func (t *Tenant) adviceWithout() string {
	return fmt.Sprintf("end some of the programs that hold a connection of tenant %q (as root, ss -xp lists them), or wait: a connection without a session ends when it has been idle for %v; an operator can raise maxConnections in the policy", t.Name, t.IdleTimeout)
}

// take charges a connection of a user, until leave is called. A refusal says what the user
// can do without a connection.
func (s *seats) take(t *Tenant, account *ledger.Account, uid uint32) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mayTakeLocked(t, s.held[uid]) {
		refusal := gpuerr.Refused(ledger.Connections.String(), 1, 0)
		refusal.Msg = fmt.Sprintf("user %d has %d of %d connections, and must leave some to others: %s", uid, s.held[uid], t.MaxConnections, t.adviceWithout())
		return nil, refusal
	}

	charge, err := account.Reserve(ledger.Connections, 1)
	if err != nil {
		refusal := *gpuerr.From(err)
		if refusal.Code == gpuerr.Quota {
			refusal.Msg = fmt.Sprintf("all %d connections are in use: %s", t.MaxConnections, t.adviceWithout())
		}
		return nil, &refusal
	}

	charge.Commit()
	if s.held == nil {
		s.held = map[uint32]uint64{}
	}

	s.held[uid]++
	s.all++
	return func() { s.leave(uid, &charge) }, nil
}

func (s *seats) leave(uid uint32, charge *ledger.Receipt) {
	charge.Release()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.held[uid]--; s.held[uid] == 0 {
		delete(s.held, uid)
	}
}

// gateBurst is how many gates a tenant may start in a burst: by default one for each of its
// connections, when all its programs start at once.
const gateBurst = 64

// gatePace limits how often gates are started for a tenant, and for a user of it: a process
// is the largest cost of a connection.
type gatePace struct {
	mu sync.Mutex
	// +checklocks:mu
	rate uint64 // of the buckets
	// +checklocks:mu
	all bucket
	// +checklocks:mu
	users map[uint32]*bucket // all that are not full, and some that are
}

// enter counts a gate for a user of a tenant, or refuses it.
func (p *gatePace) enter(t *Tenant, uid uint32, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate != t.GateRate {
		p.rate, p.all, p.users = t.GateRate, newBucket(gateBurst, time.Second/time.Duration(t.GateRate), now), map[uint32]*bucket{}
	}

	user := p.users[uid]
	if user == nil {
		p.forgetLocked(now)
		share := uint64(gateBurst)
		if t.severalUsers() { // both the burst and the rate
			share = gateBurst * 3 / 4
		}
		b := newBucket(int(share), time.Second*gateBurst/time.Duration(t.GateRate*share), now)
		user = &b
		p.users[uid] = user
	}

	if wait := max(p.all.wait(now), user.wait(now)); wait > 0 {
		return gpuerr.New(gpuerr.Busy, "tenant %q is given %d Cap'n Proto connections in a row and then %d in a second (gateRate of the policy), and one user of several three quarters of that: connect again in %v, and keep the connection", t.Name, gateBurst, t.GateRate, wait.Round(time.Millisecond))
	}

	p.all.allow(now)
	user.allow(now)
	return nil
}

// forgetLocked forgets users with full buckets.
//
// +checklocks:p.mu
func (p *gatePace) forgetLocked(now time.Time) {
	for uid, b := range p.users {
		if b.wait(now); b.credit == b.full {
			delete(p.users, uid)
		}
	}
}

func gateRates(n *node, what string) (uint64, error) { return bounded(n, what, 1, 1000) }
