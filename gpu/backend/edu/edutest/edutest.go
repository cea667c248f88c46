// Package edutest is a model of QEMU's edu device behind fake grants: its registers, its
// DMA engine, which reaches what the fake IOMMU maps, its factorial unit and its
// interrupt. It behaves as the device does, as QEMU 7.2 has it (hw/misc/edu.c), and
// misbehaves as it is told.
//
// A transfer beyond the board's buffer, which would end the virtual machine there, is noted
// as a violation: Close reports it.
//
// Time is that of package time, so that a test in a synctest bubble waits for nothing.
package edutest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"capgpu/ddf"
	"capgpu/ddf/fake"
)

// Options of a Model. The zero value is a healthy device.
type Options struct {
	TransferTime  time.Duration // of one transfer; 0: 100 ms
	FactorialTime time.Duration // of one factorial; 0: 10 µs
	LimitBytes    uint64        // of DMA memory; 0: 128 MiB
	DMABits       int           // of the addresses of DMA memory; 0: 28
	WindowBytes   uint64        // of BAR 0; 0: 1 MiB
	Vectors       int           // 0: 1; negative: none
}

// Fault is one access of the device that its IOMMU refused.
type Fault struct {
	IOVA  ddf.IOVA
	Write bool
}

// Model is one device. Close it when its driver is done.
type Model struct {
	fn *fake.Function
	o  Options

	mu sync.Mutex
	// +checklocks:mu
	regs registers
	// +checklocks:mu
	board [boardBytes]byte
	// +checklocks:mu
	trouble Trouble
	// +checklocks:mu
	faults []Fault
	// +checklocks:mu
	violations []error
	// +checklocks:mu
	transfers int // that have ended
	// +checklocks:mu
	off bool
	// +checklocks:mu
	timers [2]*time.Timer // of the transfer and of the factorial under way
}

// Trouble is what is wrong with the device, from now on.
type Trouble struct {
	LoseInterrupts bool // no interrupt is sent
	Stuck          bool // what is begun never ends, until this is false again
	RefuseReads    int  // the next transfers from memory that the IOMMU refuses
	RefuseWrites   int  // the same to memory
	Identity       uint32
}

// New makes a device.
func New(o Options) (*Model, error) {
	orElse(&o.TransferTime, 100*time.Millisecond)
	orElse(&o.FactorialTime, 10*time.Microsecond)
	orElse(&o.LimitBytes, 128<<20)
	orElse(&o.DMABits, 28)
	orElse(&o.WindowBytes, 1<<20)
	m := &Model{o: o}
	var err error
	m.fn, err = fake.New(fake.Options{
		Info:       ddf.DeviceInfo{Name: "edu0", PCIAddress: "0000:01:00.0", VendorID: 0x1234, DeviceID: 0x11e8, Epoch: 1},
		LimitBytes: o.LimitBytes, DMABits: o.DMABits, Pinned: true, Vectors: o.Vectors,
		Windows: []fake.WindowSpec{{Bar: 0, Bytes: o.WindowBytes, Registers: m}},
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func orElse[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Grants is what its driver holds.
func (m *Model) Grants() ddf.GrantSet { return m.fn.Grants() }

// Function is the manager's side: it revokes, raises interrupts, and has the device
// leave the bus.
func (m *Model) Function() *fake.Function { return m.fn }

// Unplug takes the device off the bus, whatever it was doing.
func (m *Model) Unplug() {
	m.fn.SetGone(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopLocked()
}

// stopLocked ends what the device does, for good.
//
// +checklocks:m.mu
func (m *Model) stopLocked() {
	m.off = true
	for _, t := range m.timers {
		if t != nil {
			t.Stop()
		}
	}
}

// SetTrouble changes what is wrong with the device.
func (m *Model) SetTrouble(t Trouble) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble = t
	if t.Stuck {
		return
	}
	for i, end := range [...]func(){m.endTransfer, m.endFactorial} {
		if m.busyLocked(i) && m.timers[i] == nil { // it was stuck
			m.timers[i] = time.AfterFunc(0, end)
		}
	}
}

// Faults are the accesses that the IOMMU has refused.
func (m *Model) Faults() []Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Fault(nil), m.faults...)
}

// Transfers counts those that have ended.
func (m *Model) Transfers() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.transfers
}

// Busy reports whether a transfer is under way: it is when the device may touch memory.
func (m *Model) Busy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.busyLocked(0)
}

// Close takes the device away. The error says what its driver has left, and what would
// have ended the machine.
func (m *Model) Close() error {
	m.mu.Lock()
	m.stopLocked()
	errs := m.violations
	m.mu.Unlock()
	return errors.Join(append(errs, m.fn.Close())...)
}

// +checklocks:m.mu
func (m *Model) violate(format string, args ...any) {
	m.violations = append(m.violations, fmt.Errorf("edu: "+format, args...))
}
