package manager_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
	"capgpu/iommu"
	"capgpu/iommu/faultlog"
	"capgpu/manager"
)

// scripted is a function that acts as a test tells it. It claims to be fake, so that gpu-mock
// drives it.
type scripted struct {
	address string
	domain  *iommu.Fake
	removed chan struct{}
	trouble chan error

	mu       sync.Mutex
	event    *shm.Event // nil once closed
	begin    func(n int) error
	quiesce  func() error
	close    func() error
	counts   uint64
	perCount uint64 // added to counts at each request
	begun    int
	masked   []int
	acts     []string // Begin, Quiesce, Close and unmaps, in order
}

func newScripted(t *testing.T, address string) *scripted {
	t.Helper()
	e, err := shm.NewEvent()
	require.NoError(t, err)
	f := &scripted{address: address, event: e, removed: make(chan struct{}), trouble: make(chan error)}
	f.domain = iommu.NewFake([]iommu.Range{{Start: 1 << 32, End: 1 << 40}}, 1000)
	f.domain.Observe(f)
	return f
}

// Began and Ended implement iommu.Observer.
func (f *scripted) Began(iommu.Op) {}
func (f *scripted) Ended(op iommu.Op, err error) {
	if op.Kind == iommu.OpUnmap {
		f.act("unmap")
	}
}

func (f *scripted) act(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.acts); n == 0 || f.acts[n-1] != what {
		f.acts = append(f.acts, what)
	}
}

func (f *scripted) did() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.acts)
}

// script changes the function's behaviour from now on.
func (f *scripted) script(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *scripted) Identity() ddf.DeviceInfo {
	return ddf.DeviceInfo{PCIAddress: f.address, VendorID: 0x1234, DeviceID: 0x0001, Fake: true}
}
func (f *scripted) Domain() iommu.Domain      { return f.domain }
func (f *scripted) Windows() []ddf.WindowSpec { return nil }
func (f *scripted) WindowFD(int) (int, uint64, error) {
	return -1, 0, gpuerr.New(gpuerr.Denied, "there is no window")
}
func (f *scripted) Load32(int, uint64) (uint32, error) { return 0, nil }
func (f *scripted) Store32(int, uint64, uint32) error  { return nil }
func (f *scripted) Vectors() int                       { return 1 }

func (f *scripted) EventFD(int) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.event == nil {
		return -1, gpuerr.New(gpuerr.Closed, "the function is closed")
	}
	return f.event.DupFD()
}

func (f *scripted) SetMask(vector int, masked bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if masked {
		f.masked = append(f.masked, vector)
	}
	return nil
}

func (f *scripted) Interrupts() []uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts += f.perCount
	return []uint64{f.counts}
}

func (f *scripted) Begin() (string, error) {
	f.act("Begin")
	f.mu.Lock()
	f.begun++
	begin, n := f.begin, f.begun
	f.mu.Unlock()
	if begin != nil {
		if err := begin(n); err != nil {
			return "", err
		}
	}
	return "flr", nil
}

func (f *scripted) Quiesce() (string, error) {
	f.act("Quiesce")
	f.mu.Lock()
	quiesce := f.quiesce
	f.mu.Unlock()
	if quiesce != nil {
		if err := quiesce(); err != nil {
			return "", err
		}
	}
	return "bus mastering off, reset: flr", nil
}

func (f *scripted) Removed() <-chan struct{} { return f.removed }

func (f *scripted) Trouble() <-chan error { return f.trouble }

func (f *scripted) Cause() error {
	select {
	case <-f.removed:
		return gpuerr.New(gpuerr.DeviceLost, "the host takes %s away", f.address)
	default:
		return nil
	}
}

func (f *scripted) Close() error {
	f.act("Close")
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	if f.close != nil {
		err = f.close()
	}
	if f.event != nil {
		err = errors.Join(err, f.event.Close())
	}
	f.event = nil
	return errors.Join(err, f.domain.Close())
}

// bus is a host with scripted functions.
type bus struct {
	functions map[string]*scripted
	found     []string // by "claim": "all"
	refuse    map[string]error
	blind     error // of Faults

	mu     sync.Mutex
	wanted []string
	sink   func(faultlog.Fault)
	queued []faultlog.Fault // that only Sync reports
	syncs  int
}

func newBus(t *testing.T, addresses ...string) *bus {
	b := &bus{functions: map[string]*scripted{}, refuse: map[string]error{}}
	for _, a := range addresses {
		b.functions[a] = newScripted(t, a)
	}
	return b
}

func (b *bus) Prepare(functions []manager.FunctionPolicy, all bool) ([]string, error) {
	for _, f := range functions {
		b.wanted = append(b.wanted, f.Address)
	}
	if all {
		return b.found, nil
	}
	return nil, nil
}

func (b *bus) Open(p manager.FunctionPolicy, _ iommu.Observer) (manager.Function, error) {
	if err := b.refuse[p.Address]; err != nil {
		return nil, err
	}
	f, ok := b.functions[p.Address]
	if !ok {
		return nil, gpuerr.New(gpuerr.NoDevice, "there is no PCI function %s on this host", p.Address)
	}
	return f, nil
}

func (b *bus) Faults(sink func(faultlog.Fault)) (manager.FaultSource, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sink = sink
	return faultSource{b}, b.blind
}

func (b *bus) Close() error { return nil }

// fault reports an access of address that the IOMMU refused.
func (b *bus) fault(address string, iova iommu.IOVA) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sink(faultlog.Fault{Address: address, IOVA: iova, Write: true, Reason: "PTE Write access is not set"})
}

type faultSource struct{ *bus }

func (s faultSource) Run(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s faultSource) Sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.syncs++
	for _, f := range s.queued {
		s.sink(f)
	}
	s.queued = nil
	return nil
}

func (s faultSource) Close() error { return nil }

const (
	addressA = "0000:01:00.0"
	addressB = "0000:02:00.0"
)

// functionPolicy returns the policy of a function that gpu-mock drives.
func functionPolicy(name, address string, p *manager.Policy) manager.FunctionPolicy {
	return manager.FunctionPolicy{
		Name: name, Address: address, Driver: program("gpu-mock"), MemoryBytes: 256 << 20, IOVAEntries: 500,
		Vectors: 1, InterruptLimit: p.Device.InterruptLimit, Respawn: p.Device.Respawn,
	}
}

// startOn runs a manager with the functions edu0 (and edu1) of a bus.
func startOn(t *testing.T, b *bus, change func(*manager.Config)) *world {
	return start(t, func(c *manager.Config) {
		c.Hardware = b
		for i, address := range []string{addressA, addressB} {
			if b.functions[address] != nil {
				c.Policy.Functions = append(c.Policy.Functions, functionPolicy(fmt.Sprintf("edu%d", i), address, c.Policy))
			}
		}
		if change != nil {
			change(c)
		}
	})
}

// driverOf waits until a device has a ready driver of at least this epoch.
func (w *world) driverOf(device string, least uint64) (epoch uint64, pid int) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := len(w.lines) - 1; i >= 0; i-- {
			if n, _ := fmt.Sscanf(w.lines[i], "capgpu: device "+device+" ready (epoch %d, driver pid %d)", &epoch, &pid); n == 2 {
				return epoch >= least
			}
		}
		return false
	}, patience, time.Millisecond)
	return epoch, pid
}

// detail returns the detail of the last record of a kind.
func (l *memoryLog) detail(kind string) (detail string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if r.Kind == kind {
			detail = r.Detail
		}
	}
	return detail
}
