// Package edu drives QEMU's edu device (vendor 1234, device 11e8; QEMU docs/specs/edu):
// the smallest real PCI function that has registers, a DMA engine and interrupts.
//
// Copies and fills are the work of its DMA engine, which moves memory only to and from
// a buffer of its own: each step is memory → board → memory, of at most 2048 bytes,
// and each of the two transfers takes the device 100 ms. The one program is
// edu.factorial (factorial.go). Jobs run one at a time and in order.
//
//	Submit ──► queue ──runEngine──► registers, DMA ──► Sink.Complete
//	              └── Cancel ──► runAttendant ───────► Sink.Complete
//	vector ──runInterrupts──► runEngine looks again
//	           runWatch ──► the device is gone
//
// Interrupts are hints: what has ended is what the registers say. One that is lost is
// made up for by looking now and then, and one too many costs a look. A transfer that
// runs cannot be stopped, so a job that is cancelled ends after it, and a Reset that
// finds the device still busy when its context ends says that it failed.
//
// # What an ok means
//
// The engine reports success also of an access that the IOMMU has refused. So a step
// counts only once the driver has seen that the destination holds what the source
// held. It is repeated when it does not, and after three times the job ends as a
// device error. A client that writes to the destination of a copy under way can earn that,
// too; bytes of the source that change meanwhile are whatever they were at some time.
// (Nothing can be seen where all bytes of a source change in each step; the core asks for
// the IOMMU's refusals before it believes an ok, see backend.Info.DMA.)
//
// The device is trusted with what the IOMMU lets it reach and with nothing else: no
// register value is used as an address or a length. All-ones reads, or an
// identification that has changed, mean that it is gone: the core is told at once, also
// while nothing runs.
//
// Locks: Device.sinkMu, held while the sink is called, and inside it Device.mu, for
// bookkeeping only. Reset and Close wait for calls of the sink to return, so a Sink
// must not call them, nor hold what it needs in Complete while it does.
//
// After Close no goroutine is left and no span is touched.
package edu

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/ddf"
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
)

// The device's identity on the PCI bus.
const (
	VendorID = 0x1234
	DeviceID = 0x11e8
)

const (
	maxJobs = 16
	// cancelBound is one transfer, found to have ended without its interrupt, and
	// room for a busy host.
	cancelBound = 300 * time.Millisecond
	// openPatience is how long New waits for the manager and for a transfer that the
	// driver before has left behind.
	openPatience = 5 * time.Second
)

// Device is one function.
type Device struct {
	info backend.Info
	hardware
	threads

	sinkMu sync.Mutex
	// +checklocks:sinkMu
	sink backend.Sink // nil before Start, and once the sink knows that the device is gone

	mu sync.Mutex
	// +checklocks:mu
	state state
	// +checklocks:mu
	why string // the device is gone
	// +checklocks:mu
	queue []*task // waiting, in order
	// +checklocks:mu
	cancelled []*task // taken from the queue; the attendant completes them
	// +checklocks:mu
	running *task
	// +checklocks:mu
	delivering int // calls of the sink in progress
	// +checklocks:mu
	resetting int // calls of Reset in progress
	// +checklocks:mu
	quiet chan struct{} // closed when running and delivering are none; nil if nobody waits
	// +checklocks:mu
	closing bool
	closed  chan struct{} // closed with closeErr set
	// closeErr is read after closed.
	closeErr error
}

// hardware is what the driver holds of the function.
type hardware struct {
	regs    ddf.DeviceMmio
	vector  ddf.Interrupt
	scratch ddf.DMABuffer // one page, the first half of it for the pattern of a fill
}

// threads are the goroutines of a Device.
type threads struct {
	ctx      context.Context // ends with Close
	end      context.CancelFunc
	look     chan struct{} // capacity 1: the engine should read what it waits for
	work     chan struct{} // capacity 1: the engine should look at the queue
	attend   chan struct{} // capacity 1: the attendant should look
	gone     chan struct{} // closed when the device is
	wg       sync.WaitGroup
	progress atomic.Uint64
	counts   counters
	step     step // the engine's
}

// state of a Device.
//
//	created ──Start──► live ──► gone
//	   └──────Close──────┴───────┴──► over
type state uint8

const (
	created state = iota
	live
	gone
	over
)

// New takes the function over: window 0 has the registers, vector 0 is the one
// interrupt. It refuses a function that is not as it should be. Close the Device, also
// when it was never started.
func New(g ddf.GrantSet) (*Device, error) {
	regs := g.Mmio[0]
	switch {
	case regs == nil:
		return nil, gpuerr.New(gpuerr.NoDevice, "the grants of %s have no window of BAR 0, which has the registers", g.Device.PCIAddress)
	case regs.Size() < registerBytes:
		return nil, gpuerr.New(gpuerr.NoDevice, "the window of BAR 0 has %d bytes; the registers take %d from the start of the BAR", regs.Size(), registerBytes)
	case len(g.Interrupts) == 0:
		return nil, gpuerr.New(gpuerr.NoDevice, "the grants of %s have no interrupt vector; it takes one", g.Device.PCIAddress)
	case g.DMA == nil:
		return nil, gpuerr.New(gpuerr.NoDevice, "the grants of %s have no DMA memory", g.Device.PCIAddress)
	}
	d := &Device{
		info: backend.Info{Name: "edu", MemoryBytes: g.DMALimit(), DMA: true, Verifies: true, Deterministic: true, Limits: backend.Limits{
			MaxThreadsPerBlock: maxBlock,
			MaxBlockDim:        maxBlock,
			MaxGridDim:         maxGrid,
			MaxBindings:        2,
			MaxJobs:            maxJobs,
			SubgroupSize:       1,
			BindingAlign:       8,
			ComputeUnits:       1,
			CancelBound:        cancelBound,
		}},
		hardware: hardware{regs: regs, vector: g.Interrupts[0]},
		threads:  threads{look: make(chan struct{}, 1), work: make(chan struct{}, 1), attend: make(chan struct{}, 1), gone: make(chan struct{})},
		closed:   make(chan struct{}),
	}
	ctx, cancel := context.WithTimeout(context.Background(), openPatience)
	defer cancel()
	if err := d.identify(); err != nil {
		return nil, err
	}
	if err := d.settle(ctx); err != nil {
		return nil, err
	}
	scratch, err := g.DMA.Alloc(ctx, ddf.PageBytes)
	if err != nil {
		return nil, err
	}
	if !reaches(uint64(scratch.IOVA()), scratch.Size()) {
		_ = scratch.Free() // the process ends with this
		return nil, gpuerr.New(gpuerr.NoDevice, "DMA memory is at %#x, and the device reaches only addresses below %#x; set dmaBits of the function to %d in the policy",
			uint64(scratch.IOVA()), uint64(1)<<dmaBits, dmaBits)
	}
	d.scratch = scratch
	d.ctx, d.end = context.WithCancel(context.Background())
	return d, nil
}

// identify makes sure that it is an edu device, and that it lives.
func (d *Device) identify() error {
	id, err := d.regs.Read32(regID)
	switch {
	case err != nil:
		return err
	case id == allOnes:
		return gpuerr.New(gpuerr.DeviceLost, "the device reads as all ones: it is not on the bus")
	case id != identity:
		return gpuerr.New(gpuerr.NoDevice, "the device identifies itself as %#x, not as %#x", id, identity)
	}
	for _, token := range []uint32{0x5a5a1234, ^uint32(0x5a5a1234)} {
		if err := d.regs.Write32(regLiveness, token); err != nil {
			return err
		}
		if got, err := d.regs.Read32(regLiveness); err != nil {
			return err
		} else if got != ^token {
			return gpuerr.New(gpuerr.NoDevice, "the device does not live: its liveness register answers %#x to %#x, not %#x", got, token, ^token)
		}
	}
	return nil
}

// settle waits for what the driver before has left running, and has the device say by
// interrupt when a factorial is done.
func (d *Device) settle(ctx context.Context) error {
	for {
		busy, err := d.busy()
		if err != nil {
			return err
		}
		if busy == "" {
			break
		}
		if !sleep(ctx, pollEvery) {
			return gpuerr.New(gpuerr.Busy, "the device has %s for %v, begun before this driver", busy, openPatience)
		}
	}
	if err := d.regs.Write32(regAcknowledge, allOnes); err != nil {
		return err
	}
	return d.regs.Write32(regStatus, statusInterrupt)
}

// sleep is false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Info implements backend.Backend.
func (d *Device) Info() backend.Info { return d.info }

// Load implements backend.Backend: there is no verifier, and nothing that could run
// what it admits.
func (d *Device) Load(context.Context, []byte) (backend.Program, error) {
	return nil, gpuerr.New(gpuerr.Unimplemented, "the edu device loads no programs; it has %s", factorialName)
}

// Progress implements backend.Progresser: it grows with each transfer and each
// factorial.
func (d *Device) Progress() uint64 { return d.progress.Load() }

var (
	_ backend.Backend    = (*Device)(nil)
	_ backend.Progresser = (*Device)(nil)
)
