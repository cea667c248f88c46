package manager

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/internal/shm"
)

// No caller waits for the pages of a closed buffer. If the manager and the driver share a
// processor, the kernel gives each half of it, so a client that closes much memory would
// double the time of other clients' work. Background threads therefore free large memory.
// They get a thirtieth of the processor while others want it, and all of it otherwise.
//
// The work is not put off for good. After punchYields, a thread of ordinary priority joins
// the background thread and frees the rest.
//
// A background thread can hold a lock: that of the memory's inode, or one of the Go runtime
// between two pieces. At a thirtieth of a busy processor it holds it for about 3 ms, which is
// short enough.
const (
	// reclaimNice is added to the nice value of the thread (sched(7)): weight 36 beside 1024.
	reclaimNice = 15
	// reclaimSlice is short, as driverSlice is: the thread runs often, for a short time.
	reclaimSlice = driverSlice
	// Less than reclaimMinBytes is freed sooner than a thread is started.
	reclaimMinBytes = 1 << 20
)

// inBackground locks the goroutine to its thread, lowers the thread's priority and calls f.
// The thread ends with the goroutine, so the caller must do nothing after it.
func inBackground(f func()) {
	runtime.LockOSThread()
	if !lowerPriority() {
		defer runtime.UnlockOSThread() // its priority has not changed
	}
	f()
}

// lowerPriority lowers the priority of this thread for good, and reports whether it did. It
// leaves the first thread of the process alone: the runtime cannot end that thread, and an
// operator sees its nice value as that of the process.
func lowerPriority() bool {
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL || unix.Gettid() == unix.Getpid() {
		return false
	}
	attr.Nice, attr.Runtime = min(attr.Nice+reclaimNice, lastNice), uint64(reclaimSlice)
	return unix.SchedSetAttr(0, attr, 0) == nil
}

// lastNice is the largest nice value.
const lastNice = 19

// punchInBackground frees the pages of memory piece by piece, in the background for
// punchYields or until hurry is closed, and then in the foreground.
func punchInBackground(m *shm.Memory, bytes uint64, hurry <-chan struct{}) error {
	select {
	case <-hurry:
		return punchOut(m, bytes)
	default:
	}
	if bytes < reclaimMinBytes {
		return punchOut(m, bytes)
	}
	// A thread that yields runs again only after the others. Without the yield, the kernel
	// would switch at its next tick, up to 4 ms later.
	return newPunching(m, bytes).runInBackground(hurry, inBackground, shm.Yield)
}

func (p *punching) runInBackground(hurry <-chan struct{}, background func(func()), yield func()) error {
	go background(func() { p.run(yield) })
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
