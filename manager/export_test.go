package manager

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// These are for tests that look at the process from outside.
const (
	ConnectionDescriptors = connectionDescriptors
	ZeroPoolDescriptors   = zeroPoolSizes * zeroPoolSpares // memory of the zero pool
)

// GatesWait reports whether the pool has all its ready gates.
func (m *Manager) GatesWait() bool {
	m.gates.mu.Lock()
	defer m.gates.mu.Unlock()
	return len(m.gates.ready) == readyGates && m.gates.starting == 0
}

// HoldGateStarts keeps the thread that starts gates busy until letGo is called.
func (m *Manager) HoldGateStarts() (letGo func()) {
	held, hold := make(chan struct{}), make(chan struct{})
	m.gates.spawner.requests <- func() {
		close(held)
		<-hold
	}
	<-held
	return sync.OnceFunc(func() { close(hold) })
}

// Attaching returns how many requests to the driver of the first device wait for its answer.
func (m *Manager) Attaching() int { return len(m.devices[0].requests.turns) }

// PingsAnswered returns how many pings the first device's current driver has answered.
func (m *Manager) PingsAnswered() uint64 {
	s, _ := m.devices[0].board.get()
	if s.link == nil {
		return 0
	}
	return s.link.pings.Load()
}

var omittedForm = regexp.MustCompile(` records=(\d+) bytes=\d+ kinds="([^"]*)"$`)

// OmittedKinds returns the counts of an audit.omitted, which must add up.
func OmittedKinds(detail string) (map[string]uint64, error) {
	m := omittedForm.FindStringSubmatch(detail)
	if m == nil {
		return nil, fmt.Errorf("%q is no audit.omitted", detail)
	}
	records, _ := strconv.ParseUint(m[1], 10, 64)
	kinds := map[string]uint64{}
	for _, f := range strings.Fields(m[2]) {
		kind, count, _ := strings.Cut(f, "=")
		n, err := strconv.ParseUint(count, 10, 64)
		if err != nil {
			return nil, err
		}
		kinds[kind] = n
		records -= n
	}
	if records != 0 {
		return nil, fmt.Errorf("the kinds of %q do not add up", detail)
	}
	return kinds, nil
}
