package ledger

import (
	"fmt"
	"math/bits"
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

// amounts are mostly small, sometimes at the edges of the arithmetic.
var amounts = rapid.OneOf(rapid.Uint64Range(0, 20), rapid.Uint64Range(0, 20), rapid.Uint64Range(0, 20),
	rapid.SampledFrom([]uint64{Unlimited, Unlimited - 1, 1 << 63, 1<<63 - 1}))

// TestAgainstModel drives a ledger and the obvious model with the same calls and
// requires the same answers and the same books after each.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := func(label string) uint64 {
			return rapid.OneOf(rapid.Uint64Range(0, 60), rapid.Just(uint64(Unlimited)), rapid.Just(uint64(Unlimited-3))).Draw(t, label)
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
		class := rapid.SampledFrom([]Class{Buffers, DeviceMemory})
		rootLimits := limits()
		book := New("device", rootLimits)
		root := &modelAccount{real: book.Root(), limits: rootLimits}
		accounts := []*modelAccount{root}
		var charges []*modelCharge
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
				child := &modelAccount{real: a, parent: parent, limits: l}
				parent.children = append(parent.children, child)
				accounts = append(accounts, child)
			},
			"reserve": func(t *rapid.T) {
				m, c, n := pick(), class.Draw(t, "class"), amounts.Draw(t, "amount")
				available := m.available(c)
				receipt, err := m.real.Reserve(c, n)
				switch {
				case !m.open():
					require.ErrorIs(t, err, gpuerr.Closed)
				case n > available:
					refusal := gpuerr.From(err)
					require.Equal(t, gpuerr.Quota, refusal.Code)
					require.Equal(t, []any{c.String(), n, available}, []any{refusal.Resource, refusal.Asked, refusal.Available})
				default:
					require.NoError(t, err)
					charge := &modelCharge{receipt: receipt, at: m, class: c, amount: n}
					m.charges = append(m.charges, charge)
					charges = append(charges, charge)
					m.notePeaks()
				}
			},
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
				err := m.real.Spend(DeviceTime, n)
				for m.detached {
					m = m.parent
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
				require.Equal(t, m.available(DeviceTime) > 0, m.real.CanSpend(DeviceTime) == nil)
			},
			"limit": func(t *rapid.T) {
				m, c, n := pick(), class.Draw(t, "class"), limit("limit")
				m.real.SetLimit(c, n)
				m.limits[c] = n
			},
			"close": func(t *rapid.T) {
				m := pick()
				err := m.real.Close()
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
				if m.parent != nil {
					m.detached = true
					for c, n := range m.spent {
						m.parent.spent[c] += n
					}
					m.spent = Limits{}
					for i, child := range m.parent.children {
						if child == m {
							m.parent.children = append(m.parent.children[:i:i], m.parent.children[i+1:]...)
						}
					}
				}
			},
			"": func(t *rapid.T) {
				require.NoError(t, book.Check())
				for _, m := range accounts {
					if m.detached {
						continue
					}
					require.Equal(t, m.empty(), m.real.Zero() == nil)
					for i, e := range m.real.Snapshot() {
						c := Class(i)
						reserved, used := m.sums(c)
						require.Equal(t, Entry{Class: c, Reserved: reserved, Used: used, Limit: m.limits[c], Peak: m.peaks[c]}, e)
						if m.open() {
							require.Equal(t, m.available(c), m.real.Available(c))
						} else {
							require.Zero(t, m.real.Available(c))
						}
					}
				}
			},
		})
	})
}
