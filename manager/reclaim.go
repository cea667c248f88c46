package manager

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/internal/shm"
)

// Pages that somebody has closed are given back for nobody who waits. Where the driver has
// the same processor, the kernel would share it equally between the two, and whoever closes
// much would have the others' work take twice as long. So much of it is done by threads that
// come behind: they have a thirtieth of the processor as long as others want it, and
// all of it as soon as nobody does.
//
// It is never put off for good. What is not done after punchGives is done as ever, by a thread
// like any other, together with the one that is behind. A thirtieth is not so little either
// that who is behind could hold a lock for long, some 3 ms where all others are busy: that of
// the memory's inode, or one of the Go runtime, which it takes between two pieces.
const (
	// reclaimNice is added to the nice value of the thread (sched(7)): 36 parts beside 1024.
	reclaimNice = 15
	// reclaimSlice is as driverSlice: a thread that has little is to have it often.
	reclaimSlice = driverSlice
	// reclaimMinBytes is what is worth a thread of its own: it takes less time than this.
	reclaimMinBytes = 1 << 20
)

// behind calls f on this goroutine's thread, which comes behind others from then on and ends
// with the goroutine: the caller does nothing else afterwards.
func inBackground(f func()) {
	runtime.LockOSThread()
	if !lowerPriority() {
		defer runtime.UnlockOSThread() // it is as it was
	}
	f()
}

// lowerPriority puts this thread behind others, for good, and reports whether it has. The first
// thread of the process stays as it is: the runtime cannot end it, and its nice value is what
// an operator sees of the process.
func lowerPriority() bool {
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL || unix.Gettid() == unix.Getpid() {
		return false
	}
	attr.Nice, attr.Runtime = min(attr.Nice+reclaimNice, lastNice), uint64(reclaimSlice)
	return unix.SchedSetAttr(0, attr, 0) == nil
}

// lastNice is the last nice value that there is.
const lastNice = 19

// punching is memory that is punched out, by one thread or by several.
type punching struct {
	memory *shm.Memory
	bytes  uint64
	piece  uint64
	done   chan struct{} // closed when all of it is punched, or some of it failed and nobody is at it

	mu sync.Mutex
	// +checklocks:mu
	next uint64 // nobody has begun to punch from here on
	// +checklocks:mu
	inProgress int // pieces that somebody is at
	// +checklocks:mu
	err error
}

// newPunching is for the first bytes of m, which are some.
func newPunching(m *shm.Memory, bytes uint64) *punching {
	return &punching{memory: m, bytes: bytes, piece: max(pagesPiece, m.Granule()), done: make(chan struct{})}
}

// run punches until nothing is left to begin, and calls rest after each piece. Who comes when
// all is begun does not touch the memory.
func (p *punching) run(rest func()) {
	for {
		off, ok := p.begin()
		if !ok {
			return
		}
		p.end(p.memory.Punch(off, min(p.piece, p.bytes-off)))
		rest()
	}
}

func (p *punching) begin() (off uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next >= p.bytes {
		return 0, false
	}
	off = p.next
	p.next += p.piece
	p.inProgress++
	return off, true
}

func (p *punching) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inProgress--
	if err != nil {
		p.err, p.next = errors.Join(p.err, err), p.bytes
	}
	if p.inProgress == 0 && p.next >= p.bytes {
		close(p.done)
	}
}

// wait waits for all of it.
func (p *punching) wait() error {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// punchInBackground gives the pages of memory back, piece by piece, behind others for punchGives, or
// until somebody is in a hurry.
func punchInBackground(m *shm.Memory, bytes uint64, hurry <-chan struct{}) error {
	select {
	case <-hurry:
		return punchOut(m, bytes)
	default:
	}
	if bytes < reclaimMinBytes {
		return punchOut(m, bytes)
	}
	// Who gives way is not asked again before others have had their part; the kernel would
	// find out at its next tick, up to 4 ms later.
	return newPunching(m, bytes).runInBackground(hurry, inBackground, shm.GiveWay)
}

func (p *punching) runInBackground(hurry <-chan struct{}, background func(func()), rest func()) error {
	go background(func() { p.run(rest) })
	timer := time.NewTimer(punchYields)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-hurry:
	case <-timer.C:
	}
	p.run(func() {})
	return p.wait()
}
