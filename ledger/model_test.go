package ledger

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capgpu/gpuerr"
)

// modelAccount is the slow obvious account: it keeps every charge in a list and
// adds them up whenever it is asked.
type modelAccount struct {
	real     *Account
	parent   *modelAccount
	children []*modelAccount
	limits   Limits
	peaks    Limits
	charges  []*modelCharge
	spent    Limits
	closed   bool
	detached bool
}

type modelCharge struct {
	receipt  Receipt
	at       *modelAccount
	class    Class
	amount   uint64
	used     bool
	released bool
}

// modelLease is a lease in the model: its charge is kept like any other.
type modelLease struct {
	*Lease
	*modelCharge
}

type modelMeter struct {
	*Meter
	at *modelAccount
}

func newModel(limits Limits) (*Ledger, *modelAccount) {
	book := New("device", limits)
	return book, &modelAccount{real: book.Root(), limits: limits}
}

func (m *modelAccount) child(real *Account, limits Limits) *modelAccount {
	child := &modelAccount{real: real, parent: m, limits: limits}
	m.children = append(m.children, child)
	return child
}

func (m *modelAccount) sums(c Class) (reserved, used uint64) {
	used = m.spent[c]
	for _, charge := range m.charges {
		switch {
		case charge.class != c || charge.released:
		case charge.used:
			used += charge.amount
		default:
			reserved += charge.amount
		}
	}
	for _, child := range m.children {
		r, u := child.sums(c)
		reserved, used = reserved+r, used+u
	}
	return reserved, used
}

func (m *modelAccount) room(c Class) uint64 {
	r, u := m.sums(c)
	if r+u >= m.limits[c] {
		return 0
	}
	return m.limits[c] - r - u
}

func (m *modelAccount) available(c Class) uint64 {
	least := m.room(c)
	if m.parent != nil {
		least = min(least, m.parent.available(c))
	}
	return least
}

func (m *modelAccount) open() bool {
	return !m.closed && (m.parent == nil || m.parent.open())
}

func (m *modelAccount) notePeaks() {
	for a := m; a != nil; a = a.parent {
		for c := range NumClasses {
			r, u := a.sums(c)
			a.peaks[c] = max(a.peaks[c], r+u)
		}
	}
}

func (m *modelAccount) empty() bool {
	for c := range NumClasses {
		if r, u := m.sums(c); !c.Spent() && r+u != 0 {
			return false
		}
	}
	return true
}

// requireReserve requires that a request of n at m got the right answer, and reports whether
// it was granted.
func (m *modelAccount) requireReserve(t require.TestingT, c Class, n, available uint64, err error) (granted bool) {
	switch {
	case !m.open():
		require.ErrorIs(t, err, gpuerr.Closed)
	case n > available:
		refusal := gpuerr.From(err)
		require.Equal(t, gpuerr.Quota, refusal.Code)
		require.Equal(t, []any{c.String(), n, available}, []any{refusal.Resource, refusal.Asked, refusal.Available})
		require.Equal(t, m.tightest(c).real.full, refusal.Msg)
	default:
		require.NoError(t, err)
		return true
	}
	return false
}

// tightest is the account with the least room, the lowest of several.
func (m *modelAccount) tightest(c Class) *modelAccount {
	if m.parent == nil || m.room(c) == m.available(c) {
		return m
	}
	return m.parent.tightest(c)
}

// requireSpend records n spent at m, and requires that it was answered rightly.
func (m *modelAccount) requireSpend(t require.TestingT, n uint64, err error) {
	for m.detached {
		m = m.parent
	}
	root := m
	for root.parent != nil {
		root = root.parent
	}
	_, spent := root.sums(DeviceTime)
	if _, carry := bits.Add64(spent, n, 0); carry != 0 {
		require.ErrorIs(t, err, gpuerr.Invalid)
		return
	}
	m.spent[DeviceTime] += n
	m.notePeaks()
	over := false
	for a := m; a != nil; a = a.parent {
		_, spent := a.sums(DeviceTime)
		over = over || spent > a.limits[DeviceTime]
	}
	if over {
		require.ErrorIs(t, err, gpuerr.Quota)
	} else {
		require.NoError(t, err)
	}
}

// amounts are mostly small, sometimes at the edges of the arithmetic.
var amounts = rapid.OneOf(rapid.Uint64Range(0, 20), rapid.Uint64Range(0, 20), rapid.Uint64Range(0, 20),
	rapid.SampledFrom([]uint64{Unlimited, Unlimited - 1, 1 << 63, 1<<63 - 1}))

// TestAgainstModel drives a ledger and the obvious model with the same calls and
// requires the same answers and the same books after each.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := func(label string) uint64 {
			return rapid.OneOf(rapid.Uint64Range(0, 60), rapid.Uint64Range(0, 5000), rapid.Just(uint64(Unlimited)), rapid.Just(uint64(Unlimited-3))).Draw(t, label)
		}
		limits := func() (l Limits) {
			for c := range l {
				l[c] = Unlimited
			}
			for _, c := range []Class{Buffers, DeviceMemory, DeviceTime} {
				l[c] = limit("limit")
			}
			return l
		}
		anyClass := rapid.SampledFrom([]Class{Buffers, DeviceMemory, DeviceTime})
		class := rapid.SampledFrom([]Class{Buffers, DeviceMemory})
		book, root := newModel(limits())
		accounts := []*modelAccount{root}
		var charges []*modelCharge
		var leases []*modelLease
		var meters []*modelMeter
		pick := func() *modelAccount { return rapid.SampledFrom(accounts).Draw(t, "account") }

		t.Repeat(map[string]func(*rapid.T){
			"child": func(t *rapid.T) {
				parent, l := pick(), limits()
				a, err := parent.real.Child(fmt.Sprintf("account %d", len(accounts)), l)
				if !parent.open() {
					require.ErrorIs(t, err, gpuerr.Closed)
					return
				}
				require.NoError(t, err)
				accounts = append(accounts, parent.child(a, l))
			},
			"reserve": func(t *rapid.T) {
				m, c, n := pick(), class.Draw(t, "class"), amounts.Draw(t, "amount")
				available := m.available(c)
				receipt, err := m.real.Reserve(c, n)
				if m.requireReserve(t, c, n, available, err) {
					charge := &modelCharge{receipt: receipt, at: m, class: c, amount: n}
					m.charges = append(m.charges, charge)
					charges = append(charges, charge)
					m.notePeaks()
				}
			},
			"lease": func(t *rapid.T) {
				m, c := pick(), class.Draw(t, "class")
				leases = append(leases, &modelLease{m.real.Lease(c), m.charge(c)})
			},
			"take": func(t *rapid.T) {
				l := pickOf(t, leases)
				n := amounts.Draw(t, "amount")
				available := l.at.available(l.modelCharge.class)
				if l.at.requireReserve(t, l.modelCharge.class, n, available, l.Take(n)) {
					l.amount += n
					l.at.notePeaks()
				}
			},
			"give": func(t *rapid.T) {
				l := pickOf(t, leases)
				n := l.amount
				if n > 0 && rapid.Bool().Draw(t, "part") {
					n = rapid.Uint64Range(0, min(n, 20)).Draw(t, "amount")
				}
				l.Give(n)
				l.amount -= n
			},
			"end lease": func(t *rapid.T) { pickOf(t, leases).Lease.Close() },
			"meter": func(t *rapid.T) {
				m := pick()
				meters = append(meters, &modelMeter{m.real.Meter(DeviceTime), m})
			},
			"meter's spend": func(t *rapid.T) {
				m, n := pickOf(t, meters), amounts.Draw(t, "amount")
				m.at.requireSpend(t, n, m.Spend(n))
			},
			"end meter": func(t *rapid.T) { pickOf(t, meters).Close() },
			"commit": func(t *rapid.T) {
				if len(charges) == 0 {
					t.Skip()
				}
				charge := rapid.SampledFrom(charges).Draw(t, "charge")
				charge.receipt.Commit()
				charge.used = true
			},
			"release": func(t *rapid.T) {
				if len(charges) == 0 {
					t.Skip()
				}
				charge := rapid.SampledFrom(charges).Draw(t, "charge")
				charge.receipt.Release()
				charge.released = true
				require.Zero(t, charge.receipt.Amount())
			},
			"spend": func(t *rapid.T) {
				m, n := pick(), amounts.Draw(t, "amount")
				m.requireSpend(t, n, m.real.Spend(DeviceTime, n))
			},
			"can spend": func(t *rapid.T) {
				m := pick()
				if !m.detached {
					require.Equal(t, m.available(DeviceTime) > 0, m.real.CanSpend(DeviceTime) == nil)
				}
			},
			"available": func(t *rapid.T) {
				if m, c := pick(), anyClass.Draw(t, "class"); m.open() {
					require.Equal(t, m.available(c), m.real.Available(c))
				} else {
					require.Zero(t, m.real.Available(c))
				}
			},
			"limit": func(t *rapid.T) {
				m, c, n := pick(), anyClass.Draw(t, "class"), limit("limit")
				m.real.SetLimit(c, n)
				m.limits[c] = n
			},
			"close": func(t *rapid.T) {
				m := pick()
				m.requireClose(t, m.real.Close())
			},
			// A look makes everything cold, so it is not made after each step.
			"look": func(t *rapid.T) {
				m := pick()
				if m.detached {
					return
				}
				m.requireSame(t)
			},
			"": func(t *rapid.T) {
				require.NoError(t, book.Check())
				for _, l := range leases { // any trip to the tree may make it warm
					l.cool.Store(0)
				}
				for _, m := range meters {
					m.cool.Store(0)
				}
			},
		})
	})
}

// requireSame requires that the counts of m are those of the model.
func (m *modelAccount) requireSame(t require.TestingT) {
	require.Equal(t, m.empty(), m.real.Zero() == nil)
	for i, e := range m.real.Snapshot() {
		c := Class(i)
		reserved, used := m.sums(c)
		require.Equal(t, Entry{Class: c, Reserved: reserved, Used: used, Limit: m.limits[c], Peak: m.peaks[c]}, e, m.real.name)
	}
}

// requireClose closes m, and requires that it was answered rightly.
func (m *modelAccount) requireClose(t require.TestingT, err error) {
	if m.detached {
		require.NoError(t, err)
		return
	}
	m.closed = true
	if !m.empty() || len(m.children) > 0 {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	if m.parent == nil {
		return
	}
	m.detached = true
	for c, n := range m.spent {
		m.parent.spent[c] += n
	}
	m.spent = Limits{}
	m.parent.children = slices.DeleteFunc(m.parent.children, func(child *modelAccount) bool { return child == m })
}

// charge is a charge of nothing so far.
func (m *modelAccount) charge(c Class) *modelCharge {
	charge := &modelCharge{at: m, class: c}
	m.charges = append(m.charges, charge)
	return charge
}

func pickOf[T any](t *rapid.T, of []T) T {
	if len(of) == 0 {
		t.Skip()
	}
	return rapid.SampledFrom(of).Draw(t, "which")
}
