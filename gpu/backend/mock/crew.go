package mock

import (
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"capgpu/gpu/backend"
	"capgpu/internal/shm"
	"capgpu/outcome"
	"capgpu/program/lane"
	"capgpu/program/native"
)

// parallelBytes is the size from which a copy or fill is worth sharing.
const parallelBytes = 1 << 20

// crew runs the blocks of a task on the engine's goroutine, which is member 0, and
// for large tasks on workers. It belongs to the engine: one task at a time.
type crew struct {
	task   task
	wake   []chan *task // one per worker, unbuffered
	ended  sync.WaitGroup
	closed chan struct{}
}

// task is one job's work, cut into blocks. Blocks are handed out in order, so when
// one traps every earlier one has been run or is being run: which trap is the
// lowest does not depend on which worker runs which block.
type task struct {
	dev     *Device
	slot    *slot
	job     *backend.Job // of the slot, or an entry of its list
	kernel  kernel
	items   uint64 // bytes, words, workgroups, or what a fast body counts
	block   uint64 // items in a block
	shared  bool   // it is worth sharing
	serial  bool   // results would depend on the order of blocks
	reverse bool   // blocks run from the last to the first (serial)

	move
	launch

	next     atomic.Uint64 // block to hand out
	done     atomic.Uint64 // items
	broken   atomic.Bool   // a kernel has a bug
	declined atomic.Bool   // a fast body does not do this launch after all

	firstTrap
}

// move is the memory of a copy or a fill.
type move struct {
	dst     []byte
	src     []byte
	words   []uint32
	pattern uint32
}

// launch is what a launch runs on.
type launch struct {
	bindings [maxBindings][]byte
	body     *native.Body
	call     native.Call
	work     lane.Launch
	members  []*lane.Worker // nil but for the lane engine
}

// firstTrap is the trap of the lowest block that trapped.
type firstTrap struct {
	mu sync.Mutex
	// +checklocks:mu
	hasTrap bool
	// +checklocks:mu
	first outcome.Trap
	// +checklocks:mu
	firstItem uint64
}

// kernel does items [lo, hi) of a task, as a member of the crew. It returns false
// if there is nothing more to do for anybody.
type kernel func(t *task, member int, lo, hi uint64) bool

func (c *crew) init(workers int) {
	for range workers - 1 {
		c.wake = append(c.wake, make(chan *task))
	}
	c.closed = make(chan struct{})
}

// size counts the members.
func (c *crew) size() int { return len(c.wake) + 1 }

// start runs the workers until close.
func (c *crew) start(wg *sync.WaitGroup) {
	for i, wake := range c.wake {
		wg.Go(func() { c.runWorker(i+1, wake) })
	}
}

func (c *crew) runWorker(member int, wake <-chan *task) {
	for {
		select {
		case t := <-wake:
			t.run(member)
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
	if t.shared && !t.serial {
		c.ended.Add(len(c.wake))
		for _, wake := range c.wake {
			wake <- t
		}
	}
	t.run(0)
	c.ended.Wait()
}

// begin makes the task ready for the job in s, or for an entry of its list.
func (t *task) begin(s *slot, job *backend.Job) {
	t.slot, t.job, t.kernel = s, job, nil
	t.items, t.block = 0, 1
	t.shared, t.serial, t.reverse = false, false, false
	t.members = nil
	t.next.Store(0)
	t.done.Store(0)
	t.broken.Store(false)
	t.declined.Store(false)
	t.mu.Lock()
	t.hasTrap, t.first, t.firstItem = false, outcome.Trap{}, 0
	t.mu.Unlock()
}

// end keeps no view of memory that the core may unmap now.
func (t *task) end() {
	t.slot, t.job, t.kernel, t.members, t.body = nil, nil, nil, nil, nil
	t.dst, t.src, t.words = nil, nil, nil
	clear(t.bindings[:])
	t.call, t.work = native.Call{}, lane.Launch{Wait: t.work.Wait}
}

// stopped reports whether the job is to end early.
func (t *task) stopped() bool { return t.slot.stop.Load() != stopNone }

// run takes blocks until there are none, one traps, or the job is stopped.
func (t *task) run(member int) {
	// Reads of client memory may fault at any time; as a panic that is an end of
	// the job. The setting is this goroutine's only; what the fault may have left in the
	// thread is caught's to put right, on that thread.
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	lo := uint64(0)
	defer func() {
		if p := recover(); p != nil { // of a kernel: the goroutine has its thread
			t.caught(p, member, lo)
			runtime.UnlockOSThread()
		}
	}()
	blocks := t.items / t.block
	if t.items%t.block != 0 {
		blocks++
	}
	t.dev.enter()
	defer t.dev.leave()
	for !t.stopped() && t.goesOn() {
		i := t.next.Add(1) - 1
		if i >= blocks {
			return
		}
		if t.reverse {
			i = blocks - 1 - i
		}
		lo = i * t.block
		hi := min(lo+t.block, t.items)
		runtime.LockOSThread() // not longer: to wait with it costs two more switches
		more := t.kernel(t, member, lo, hi)
		runtime.UnlockOSThread()
		if !more {
			t.next.Store(blocks) // no more
			return
		}
		t.done.Add(hi - lo)
	}
}

// caught turns a memory fault in the block that begins at lo into a trap.
func (t *task) caught(p any, member int, lo uint64) {
	native.RestoreFloats()
	t.next.Store(t.items) // there are at most as many blocks as items
	addr, ok := shm.FaultAddress(p)
	if !ok {
		sayBug(p) // not memory that went away
		t.broken.Store(true)
		return
	}
	trap := memoryGone(t.job, addr)
	trap.Workgroup = workgroupOf(t.members, member)
	t.trap(trap, lo)
}

// memoryGone is the trap of a fault at an address.
func memoryGone(job *backend.Job, addr uintptr) outcome.Trap {
	for i, span := range job.Spans {
		if off, ok := offsetIn(span.Host, addr); ok {
			return outcome.Trap{Kind: outcome.MemoryGone, Binding: uint16(i), Offset: off}
		}
	}
	return outcome.Trap{Kind: outcome.MemoryGone}
}

// trap notes a trap of the block that begins at lo. The lowest stands.
func (t *task) trap(trap outcome.Trap, lo uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.hasTrap || lo < t.firstItem {
		t.hasTrap, t.first, t.firstItem = true, trap, lo
	}
}

func (t *task) trapped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hasTrap
}

// outcome sums up a task that has ended.
func (t *task) outcome() outcome.Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.hasTrap:
		return trapped(t.first)
	case t.stopped() && t.done.Load() < t.items:
		return outcome.Outcome{Kind: outcome.Cancelled}
	}
	return outcome.Success
}

// sayBug tells of a bug of the device.
func sayBug(p any) {
	slog.Error("the mock device has a bug", "panic", p, "stack", string(debug.Stack()))
}
