package mock

import (
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// parallelBytes is the size from which a job is worth sharing.
const parallelBytes = 1 << 20

// crew runs the blocks of a task on the engine's goroutine and, for large tasks,
// on workers. It belongs to the engine: one task at a time.
type crew struct {
	task   task
	wake   []chan *task // one per worker, unbuffered
	ended  sync.WaitGroup
	closed chan struct{}
}

// task is one job's work, cut into blocks of less than a millisecond. Blocks are
// handed out in order, so when one faults every earlier one has been run or is
// being run: the lowest fault does not depend on who runs what.
type task struct {
	slot    *slot
	kernel  kernel
	items   uint64 // elements, bytes or rows, as the kernel counts
	block   uint64 // items in a block
	perItem uint64 // bytes written for an item
	total   uint64 // bytes touched, about
	serial  bool   // results would depend on the order of blocks
	reverse bool   // blocks run from the last to the first (serial)
	lanes   geometry

	bytes   [2][]byte
	words   [3][]uint32
	floats  [3][]float32
	pattern uint32
	scale   float32
	cols    uint64

	next    atomic.Uint64 // block to hand out
	written atomic.Uint64
	broken  atomic.Bool // a kernel has a bug

	mu sync.Mutex
	// +checklocks:mu
	faulted bool
	// +checklocks:mu
	fault outcome.Trap
	// +checklocks:mu
	faultItem uint64
}

// kernel does items [lo, hi) of a task. It returns false if it was stopped.
type kernel func(t *task, lo, hi uint64) bool

func (c *crew) init(workers int) {
	for range workers - 1 {
		c.wake = append(c.wake, make(chan *task))
	}
	c.closed = make(chan struct{})
}

// start runs the workers until close.
func (c *crew) start(wg *sync.WaitGroup) {
	for _, wake := range c.wake {
		wg.Go(func() { c.runWorker(wake) })
	}
}

func (c *crew) runWorker(wake <-chan *task) {
	for {
		select {
		case t := <-wake:
			t.work()
			c.ended.Done()
		case <-c.closed:
			return
		}
	}
}

// close ends the workers. Nothing may run.
func (c *crew) close() { close(c.closed) }

// run does all blocks of a task and returns when nobody touches its memory.
func (c *crew) run(t *task) {
	if !t.serial && t.total >= parallelBytes {
		c.ended.Add(len(c.wake))
		for _, wake := range c.wake {
			wake <- t
		}
	}
	t.work()
	c.ended.Wait()
}

// reset makes the task ready for the job in s, nil for none.
func (t *task) reset(s *slot) {
	t.slot, t.kernel = s, nil
	t.items, t.block, t.perItem, t.total = 0, 0, 0, 0
	t.serial, t.reverse = false, false
	t.lanes = geometry{}
	t.bytes, t.words, t.floats = [2][]byte{}, [3][]uint32{}, [3][]float32{}
	t.next.Store(0)
	t.written.Store(0)
	t.broken.Store(false)
	t.mu.Lock()
	t.faulted, t.fault, t.faultItem = false, outcome.Trap{}, 0
	t.mu.Unlock()
}

// stopped reports whether the job is to end early.
func (t *task) stopped() bool { return t.slot.stop.Load() != stopNone }

// work takes blocks until there are none, one faults, or the job is stopped.
func (t *task) work() {
	// Reads of client memory may fault at any time; as a panic that is an end of
	// the job. The setting is this goroutine's only.
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer t.catch()
	blocks := (t.items + t.block - 1) / t.block
	for !t.stopped() {
		i := t.next.Add(1) - 1
		if i >= blocks {
			return
		}
		if t.reverse {
			i = blocks - 1 - i
		}
		lo := i * t.block
		hi := min(lo+t.block, t.items)
		if !t.kernel(t, lo, hi) {
			return
		}
		t.written.Add((hi - lo) * t.perItem)
	}
}

// catch turns a memory fault of the running block into a trap.
func (t *task) catch() {
	p := recover()
	if p == nil {
		return
	}
	addr, ok := faultAddress(p)
	if !ok {
		sayBug(p) // not memory that went away
		t.broken.Store(true)
		t.next.Store(t.items)
		return
	}
	trap, item := t.locateFault(addr)
	t.next.Store(t.items) // no more blocks; there are at most as many as items
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.faulted || item < t.faultItem {
		t.faulted, t.fault, t.faultItem = true, trap, item
	}
}

// faultAddress is the address in the panic of a memory fault.
func faultAddress(p any) (uintptr, bool) {
	if err, ok := p.(runtime.Error); ok {
		if e, ok := err.(interface{ Addr() uintptr }); ok {
			return e.Addr(), true
		}
	}
	return 0, false
}

// sayBug tells of a bug of the device. It is gone then, as hardware that fails is:
// the core ends what everybody has in order, and its process is replaced.
func sayBug(p any) {
	slog.Error("the mock device fails because of a bug", "panic", p, "stack", string(debug.Stack()))
}

// guard runs f and reports a memory fault in it.
func guard(f func()) (addr uintptr, faulted bool) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if p := recover(); p != nil {
			if addr, faulted = faultAddress(p); !faulted {
				panic(p)
			}
		}
	}()
	f()
	return 0, false
}

// locateFault finds the binding, the byte and the lane of a faulting access.
func (t *task) locateFault(addr uintptr) (outcome.Trap, uint64) {
	trap := outcome.Trap{Kind: outcome.MemoryGone}
	for i, span := range t.slot.job.Spans {
		if off, ok := offsetIn(span.Host, addr); ok {
			trap.Binding, trap.Offset = uint16(i), off
			break
		}
	}
	item := trap.Offset / 4
	if t.cols > 0 && trap.Binding == 0 {
		item /= t.cols
	}
	trap.Workgroup, trap.Lane = t.lanes.of(item)
	return trap, item
}

// outcome sums up a task that has ended.
func (t *task) outcome() outcome.Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.faulted:
		return trapped(t.fault)
	case t.stopped() && t.written.Load() < t.items*t.perItem:
		return outcome.Outcome{Kind: outcome.Cancelled}
	}
	return outcome.Success
}

// geometry is the lanes of a launch: item i belongs to lane i modulo their count.
type geometry struct{ grid, block uint64 }

func geometryOf(job *backend.Job) geometry {
	return geometry{grid: job.Grid.Count(), block: job.Block.Count()}
}

// of is where an item is computed. Copies and fills have no lanes.
func (g geometry) of(item uint64) (workgroup, lane uint32) {
	if g.grid == 0 || g.block == 0 {
		return 0, 0
	}
	lanes := item % (g.grid * g.block)
	return uint32(lanes / g.block), uint32(lanes % g.block)
}
