package benchtest

import (
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Counter is a blocking eventfd that is used without Go's runtime knowing: what C
// would do. It is for a process in which a PingPong runs.
type Counter int

// NewCounter makes one of value 0.
func NewCounter() (Counter, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	return Counter(fd), err
}

// Add adds n.
func (c Counter) Add(n uint64) error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, uintptr(c), uintptr(unsafe.Pointer(&n)), 8); errno != 0 {
		return errno
	}
	return nil
}

// Take waits until the counter is not zero, and makes it zero.
func (c Counter) Take() (n uint64, err error) {
	for {
		_, _, errno := syscall.RawSyscall(syscall.SYS_READ, uintptr(c), uintptr(unsafe.Pointer(&n)), 8)
		switch errno {
		case 0:
			return n, nil
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}

// Close closes the descriptor.
func (c Counter) Close() error { return unix.Close(int(c)) }

// PingPong is a thread that answers: the peer in every measurement of a wake-up and its
// answer. A thread that waits for a Counter keeps its P and cannot be stopped: so while there
// is a PingPong there are Ps to spare, and no garbage is collected; do nothing that stops the
// world, as the timers of testing.B do.
type PingPong struct {
	restore    func()
	ping, pong Counter
	ended      sync.WaitGroup
	err        error     // of the thread; read after ended
	woken      time.Time // when the last round woke the thread, if stamp
	stamp      bool
}

// quit is a ping that ends the thread.
const quit = 1 << 32

// spareProcs are for the threads that wait, and all others.
const spareProcs = 8

// NewPingPong starts the thread.
func NewPingPong() (p *PingPong, err error) {
	p = &PingPong{}
	if p.ping, err = NewCounter(); err != nil {
		return nil, err
	}
	if p.pong, err = NewCounter(); err != nil {
		return nil, errors.Join(err, p.ping.Close())
	}
	runtime.GC() // and none is under way
	procs, percent := runtime.GOMAXPROCS(runtime.GOMAXPROCS(0)+spareProcs), debug.SetGCPercent(-1)
	p.restore = func() { runtime.GOMAXPROCS(procs); debug.SetGCPercent(percent) }
	p.ended.Go(p.run)
	return p, nil
}

func (p *PingPong) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		n, err := p.ping.Take()
		if err != nil || n >= quit {
			p.err = err
			return
		}
		if p.stamp {
			p.woken = time.Now()
		}
		if p.err = p.pong.Add(1); p.err != nil {
			return
		}
	}
}

// Round wakes the thread and waits for its answer: two writes, two reads and two
// wakes.
func (p *PingPong) Round() error {
	if err := p.ping.Add(1); err != nil {
		return err
	}
	_, err := p.pong.Take()
	return err
}

// OneWay is a round, of which it returns how long it took until the thread ran.
func (p *PingPong) OneWay() (time.Duration, error) {
	p.stamp = true
	start := time.Now()
	err := p.Round()
	return p.woken.Sub(start), err
}

// Close ends the thread.
func (p *PingPong) Close() error {
	err := p.ping.Add(quit)
	if err == nil {
		p.ended.Wait()
		p.restore()
	}
	return errors.Join(err, p.err, p.ping.Close(), p.pong.Close())
}
