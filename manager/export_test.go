package manager

// For tests that look at the process from outside.
const (
	ConnectionDescriptors = connectionDescriptors
	AheadDescriptors      = aheadSizes * aheadSpares // memory that is made before it is asked for
)

// HoldGateStarts keeps the thread that gates are started from busy until letGo is called.
func (m *Manager) HoldGateStarts() (letGo func()) {
	held, hold := make(chan struct{}), make(chan struct{})
	m.gates.spawner.requests <- func() {
		close(held)
		<-hold
	}
	<-held
	return func() { close(hold) }
}

// PingsAnswered is how often the driver that the first device has now answered a ping.
func (m *Manager) PingsAnswered() uint64 {
	s, _ := m.devices[0].board.get()
	if s.link == nil {
		return 0
	}
	return s.link.pings.Load()
}
