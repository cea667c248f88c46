package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"capgpu/ddf"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
)

// Options of a Backend.
type Options struct {
	Engines     ddf.Engines
	MemoryBytes uint64        // of the host, told by Info
	Log         *slog.Logger  // nil: nothing is logged
	AnswerBound time.Duration // how long an engine may take to carry an order out, a compilation among them; 0: 10 s
}

const (
	defaultAnswerBound = 10 * time.Second
	// killBound is how long a death may take: a process with work on a GPU dies in seconds.
	killBound = time.Minute
)

// Backend is a device behind engine processes.
type Backend struct {
	engines ddf.Engines
	log     *slog.Logger
	bound   time.Duration
	device  wire.Device
	info    backend.Info
	opened  opened
	opening chan struct{} // holds one token: the right to open engines
	wake    chan struct{} // capacity 1: the dispatcher should look
	done    chan struct{} // closed by Close
	life    context.Context
	endLife context.CancelFunc
	wg      sync.WaitGroup

	mu sync.Mutex
	// +checklocks:mu
	state state
	// +checklocks:mu
	sink backend.Sink
	// +checklocks:mu
	lost error // why it is gone

	// +checklocks:mu
	order uint64 // of the last job
	// +checklocks:mu
	jobs map[backend.JobID]*job // outstanding
	// +checklocks:mu
	queue []*job // and of these, not sent, in order
	// +checklocks:mu
	preparing map[uint32]bool // groups of which a job is made ready
	// +checklocks:mu
	procs map[uint32]*proc // live engines by group
	// +checklocks:mu
	active *proc // that had the last job
	// +checklocks:mu
	held map[uint32]int // groups of which nothing is sent: a context is reset, or its engine is being killed
	// +checklocks:mu
	dying map[uint32]int // engines that are being killed, by group

	// +checklocks:mu
	memory memoryTable
	// +checklocks:mu
	lists map[uint64]*recording
	// +checklocks:mu
	variants ids
	// +checklocks:mu
	listIDs ids

	// +checklocks:mu
	delivering int // calls of the sink in progress
	// +checklocks:mu
	resetting int // calls of Reset in progress
	// +checklocks:mu
	changed chan struct{} // closed when something is over that a reset may wait for; nil if nobody does
}

// state of a Backend.
//
//	created ──Start──► live ──a kill failed──► gone
//	   └──────Close──────┴─────────Close─────────┴──► closed
type state uint8

const (
	created state = iota
	live
	gone
	closed
)

// New opens a first engine, to learn what device it is. It is of group 0, which no tenant is.
// Close the Backend, also when it was never started.
func New(ctx context.Context, o Options) (*Backend, error) {
	if o.Engines == nil {
		return nil, gpuerr.New(gpuerr.Invalid, "there are no engines")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.AnswerBound <= 0 {
		o.AnswerBound = defaultAnswerBound
	}

	b := &Backend{
		engines: o.Engines, log: o.Log, bound: o.AnswerBound,
		opening: make(chan struct{}, 1), wake: make(chan struct{}, 1), done: make(chan struct{}),
		jobs: map[backend.JobID]*job{}, procs: map[uint32]*proc{}, held: map[uint32]int{}, dying: map[uint32]int{}, preparing: map[uint32]bool{},
		memory: newMemoryTable(), lists: map[uint64]*recording{},
	}
	b.opened.byName = map[string]*code{}
	b.life, b.endLife = context.WithCancel(context.Background())
	p, err := b.proc(ctx, 0)
	if err != nil {
		b.endLife()
		return nil, fmt.Errorf("open the first engine: %w", err)
	}
	b.device = p.device
	b.info = infoOf(&b.device, o.MemoryBytes)
	return b, nil
}

// Info implements backend.Backend.
func (b *Backend) Info() backend.Info { return b.info }

// Start implements backend.Backend.
func (b *Backend) Start(sink backend.Sink) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.state == closed:
		return errClosed
	case b.state == gone:
		return b.goneLocked()
	case b.state != created:
		return gpuerr.New(gpuerr.Invalid, "Start is called once")
	case sink == nil:
		return gpuerr.New(gpuerr.Invalid, "sink is nil")
	}
	b.sink, b.state = sink, live
	b.wg.Go(b.runDispatcher)
	return nil
}

var errClosed = gpuerr.New(gpuerr.Closed, "the device was closed")

// goneLocked is the error of a device that is gone.
//
// +checklocks:b.mu
func (b *Backend) goneLocked() error {
	return gpuerr.New(gpuerr.DeviceLost, "the device is lost: %v", b.lost)
}

// loseLocked is the end of the device: nobody knows whether a process still touches memory. The
// caller tells the sink (tellGone).
//
// +checklocks:b.mu
func (b *Backend) loseLocked(err error) (first bool) {
	if b.state == gone || b.state == closed {
		return false
	}
	first = b.state == live
	b.state, b.lost = gone, err
	b.settleLocked()
	return first
}

// tellGone tells the sink that no completion comes any more.
func (b *Backend) tellGone(err error) {
	b.mu.Lock()
	sink := b.sink
	b.mu.Unlock()
	if sink != nil {
		sink.DeviceGone(err.Error())
	}
}

// settleLocked wakes the goroutines that wait for something to be over: they look again.
//
// +checklocks:b.mu
func (b *Backend) settleLocked() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// waitLocked waits until something is over. b.mu is released meanwhile.
//
// +checklocks:b.mu
// +checklocksignore: it cannot follow the way out of the select
func (b *Backend) waitLocked(ctx context.Context) error {
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	changed := b.changed
	b.mu.Unlock()
	select {
	case <-changed:
		b.mu.Lock()
		return nil
	case <-ctx.Done():
		b.mu.Lock()
		return ctx.Err()
	}
}

// Close implements backend.Backend. It is idempotent, and every call returns only when no engine
// is left.
func (b *Backend) Close() error {
	b.mu.Lock()
	if b.state == closed {
		b.mu.Unlock()
		b.wg.Wait()
		return nil
	}

	b.state = closed
	close(b.done)
	b.endLife()
	b.dropLocked(func(uint32) bool { return true })
	b.settleLocked()
	for _, p := range b.procs {
		b.failLocked(p, "the device is being closed", false)
	}
	b.mu.Unlock()
	b.wg.Wait()

	b.mu.Lock()
	defer b.mu.Unlock()
	for b.delivering > 0 { // a sink that is told something now may still be at it
		_ = b.waitLocked(context.Background()) // which never ends
	}
	return nil
}

var (
	_ backend.Backend         = (*Backend)(nil)
	_ backend.ContextResetter = (*Backend)(nil)
	_ backend.LocalMemory     = (*Backend)(nil)
	_ backend.Mapper          = (*Backend)(nil)
	_ backend.Recorder        = (*Backend)(nil)
)
