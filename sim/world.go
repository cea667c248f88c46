package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/ddf"
	"capgpu/ledger"
	"capgpu/manager"
)

// Options decide a run.
type Options struct {
	Seed   uint64
	Steps  int    // actions; 0: DefaultSteps
	Mutant Mutant // a mistake that the checks must find
	Trace  bool   // keep the lines of the trace
}

// DefaultSteps is the number of actions of a run.
const DefaultSteps = 300

// Result is the result of a run.
type Result struct {
	Seed       uint64
	Hash       uint64 // of the trace
	Virtual    time.Duration
	Hits       Hits
	Ops        int
	Violations []string // none: all held
	Lines      []string // with Options.Trace
}

// The policy of a simulated device.
const (
	strikeLimit  = 3
	strikeWindow = time.Minute
	banTime      = 10 * time.Second
	pingTimeout  = 4 * time.Second
)

// world is one run.
type world struct {
	opt     Options
	wait    func() // synctest.Wait
	rand    *rand.Rand
	dma     bool // the device moves memory by itself: an ok waits for its faults
	mutant  Mutant
	log     *slog.Logger
	began   time.Time
	step    int
	moments atomic.Uint64

	// The trace.
	record struct {
		hash  uint64
		lines []string
	}

	// The service and its host.
	host struct {
		chip     *chip
		function *function
		stage    *manager.Stage
		audit    *auditLog
		epoch    uint64    // last seen ready
		down     time.Time // the start of the device's absence; zero: it is ready
		budgeted bool      // resets were made to fail, so the device may end wedged
		crashed  int       // managers
	}

	clients struct {
		tenants  []*tenant
		sessions []*session // including closed ones
		calls    []*call    // not yet reaped
		calling  int        // number of the last one
		banned   int        // refusals
	}

	// The part that the goroutines of the service use too.
	guarded struct {
		mu         sync.Mutex
		driver     *driver
		dieAt      string
		hits       Hits
		violations []string
		ops        map[uint64]*op
		copies     map[int]uint64 // op by length
		lateness   time.Duration  // of wakes; 0: none
		wakes      uint64
		memoryOut  int // number of allocations still to fail
	}
}

// Run runs a seed. It must be called in a bubble of testing/synctest, with its Wait.
func Run(o Options, wait func()) Result {
	if o.Steps == 0 {
		o.Steps = DefaultSteps
	}

	w := &world{
		opt: o, wait: wait, mutant: o.Mutant, rand: rand.New(rand.NewPCG(o.Seed, 0x5eed)), log: slog.New(slog.DiscardHandler),
		began: time.Now(),
	}

	w.host.audit = &auditLog{}
	w.guarded.ops, w.guarded.copies = map[uint64]*op{}, map[int]uint64{}
	w.dma = w.rand.IntN(2) == 0
	w.host.chip = newChip(w)
	if w.open() {
		for w.step = 1; w.step <= o.Steps && !w.failed(); w.step++ {
			w.act()
			w.settle()
		}
		w.finish()
	}

	return Result{
		Seed: o.Seed, Hash: w.record.hash, Virtual: time.Since(w.began), Hits: w.guarded.hits, Ops: len(w.guarded.ops), Violations: w.guarded.violations, Lines: w.record.lines,
	}
}

func (w *world) policy() *manager.Policy {
	p := manager.DevPolicy()
	tenants := []manager.Tenant{p.Tenants[0], p.Tenants[0], p.Tenants[0]}
	for i := range tenants {
		t := &tenants[i]
		t.Name, t.MaxConnections, t.Weight = tenantNames[i], 8, uint32(1+i)
		t.Limits = ledger.NoLimits()
		t.Limits[ledger.DeviceMemory] = 4 << 20
		t.Limits[ledger.HostMemory] = 16 << 20
		t.Limits[ledger.Sessions], t.Limits[ledger.Buffers], t.Limits[ledger.Fences] = 8, 24, 24
		t.Limits[ledger.QueueSlots], t.Limits[ledger.InFlight] = 1024, 256
	}

	p.Tenants = tenants
	p.Device.MemoryBytes = 32 << 20
	if w.dma {
		f := manager.FunctionPolicy{Name: "sim0", Address: address, MemoryBytes: p.Device.MemoryBytes, IOVAEntries: 4096, InterruptLimit: 1 << 30, Respawn: p.Device.Respawn}
		p.Functions = []manager.FunctionPolicy{f}
	}

	return p
}

var tenantNames = []string{"alice", "bob", "carol"}

// open starts a manager on a fresh function.
func (w *world) open() bool {
	w.host.function = newFunction(w)
	cfg := manager.StageConfig{
		Config:   manager.Config{Policy: w.policy(), Audit: w.host.audit, Log: w.log, PingTimeout: pingTimeout},
		Function: w.host.function, Actors: w.newDriver,
	}

	if w.dma {
		cfg.Hardware = hostFaults{f: w.host.function}
	}

	var err error
	if w.host.stage, err = manager.NewStage(cfg); err != nil {
		w.violate("no stage: %v", err)
		return false
	}

	w.clients.tenants = nil
	for _, name := range tenantNames {
		w.clients.tenants = append(w.clients.tenants, &tenant{name: name})
	}

	w.host.epoch, w.host.down = 0, time.Now()
	return true
}

// violate records a violation of an invariant.
func (w *world) violate(format string, args ...any) {
	w.guarded.mu.Lock()
	defer w.guarded.mu.Unlock()
	if len(w.guarded.violations) < 20 {
		w.guarded.violations = append(w.guarded.violations, fmt.Sprintf("step %d, %v: ", w.step, time.Since(w.began))+fmt.Sprintf(format, args...))
	}
}

func (w *world) failed() bool {
	w.guarded.mu.Lock()
	defer w.guarded.mu.Unlock()
	return len(w.guarded.violations) > 0
}

func (w *world) hit(c Class) {
	w.guarded.mu.Lock()
	defer w.guarded.mu.Unlock()
	if c > 0 {
		w.guarded.hits[c]++
	}
}

// trace adds a line to the trace.
func (w *world) trace(format string, args ...any) {
	line := fmt.Sprintf("%d %d ", w.step, time.Since(w.began)) + fmt.Sprintf(format, args...)
	h := fnv.New64a()
	fmt.Fprintf(h, "%x %s", w.record.hash, line)
	w.record.hash = h.Sum64()
	if w.opt.Trace {
		w.record.lines = append(w.record.lines, line)
	}
}

// late is the delay of a wake.
func (w *world) late(toDriver bool) time.Duration {
	w.guarded.mu.Lock()
	defer w.guarded.mu.Unlock()
	w.guarded.wakes++
	if w.mutant == MutantLosesWakes && w.guarded.wakes%7 == 0 {
		return -1
	}
	if w.guarded.lateness == 0 {
		return 0
	}
	w.guarded.hits[WakeDelayed]++
	return w.guarded.lateness + time.Duration(w.guarded.wakes)*time.Nanosecond
}

// pool wraps a driver's allocator, to make allocations fail.
func (w *world) pool(p ddf.DMAPool) ddf.DMAPool { return &pool{DMAPool: p, w: w} }

type pool struct {
	ddf.DMAPool
	w *world
}

// Alloc implements ddf.DMAPool.
func (p *pool) Alloc(ctx context.Context, bytes uint64) (ddf.DMABuffer, error) {
	w := p.w
	w.guarded.mu.Lock()
	fail := w.guarded.memoryOut > 0
	if fail {
		w.guarded.memoryOut--
		w.guarded.hits[Exhaustion]++
	}

	w.guarded.mu.Unlock()
	if fail {
		return nil, errHostMemory
	}

	b, err := p.DMAPool.Alloc(ctx, bytes)
	if err == nil && w.mutant == MutantResidue {
		b.Bytes()[len(b.Bytes())/2] = 0x5a
	}
	if err == nil && w.mutant == MutantScrubs {
		return dirty{b}, nil
	}

	return b, err
}

// dirty is memory that Scrub does not scrub.
type dirty struct{ ddf.DMABuffer }

// Scrub implements ddf.DMABuffer.
func (dirty) Scrub(uint64, uint64) error { return nil }
