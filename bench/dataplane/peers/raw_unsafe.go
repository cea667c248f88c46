package peers

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A board is one page that two processes share. Each word has a cache line of its own.
type board struct {
	mode, ack, ping, pong *atomic.Uint32
	page                  []byte
}

const boardBytes = 4096

// The modes of the answering process. It sleeps when idle, so that it takes nothing
// from the other side of a comparison.
const (
	modeIdle uint32 = iota
	modeSpin
	modeFutex
	modeQuit
)

func mapBoard(fd int) (*board, error) {
	page, err := unix.Mmap(fd, 0, boardBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the shared page: %w", err)
	}
	word := func(off int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&page[off])) }
	// The processor prefetches a line's neighbour, so the words are 256 bytes apart
	// to share nothing.
	return &board{word(0), word(256), word(512), word(768), page}, nil
}

func (b *board) close() error { return unix.Munmap(b.page) }

const (
	futexWait = 0
	futexWake = 1
)

// await sleeps while *w is value, at most for longest. It is the bare system call,
// without the Go runtime.
func await(w *atomic.Uint32, value uint32, longest time.Duration) error {
	limit := unix.NsecToTimespec(int64(longest))
	_, _, errno := syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWait, uintptr(value), uintptr(unsafe.Pointer(&limit)), 0, 0)
	if errno != 0 && errno != syscall.EAGAIN && errno != syscall.EINTR {
		return errno
	}
	return nil
}

func wake(w *atomic.Uint32) {
	syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake, 1, 0, 0, 0)
}

// idleWait is the time that the answering process sleeps before it checks by
// itself.
const idleWait = time.Second

// answerRaw is the answering process.
func answerRaw() error {
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	b, err := mapBoard(boardFD)
	if err != nil {
		return err
	}

	for {
		switch mode := b.mode.Load(); mode {
		case modeSpin:
			last := b.ping.Load()
			b.ack.Store(mode)
			for b.mode.Load() == modeSpin {
				if p := b.ping.Load(); p != last {
					last = p
					b.pong.Store(p)
				}
			}

		case modeFutex:
			last := b.ping.Load()
			b.ack.Store(mode)
			for b.mode.Load() == modeFutex {
				if p := b.ping.Load(); p != last {
					last = p
					b.pong.Store(p)
					wake(b.pong)
				} else if err := await(b.ping, last, idleWait); err != nil && err != unix.ETIMEDOUT {
					return err
				}
			}

		case modeIdle:
			b.ack.Store(mode)
			if err := await(b.mode, modeIdle, idleWait); err != nil && err != unix.ETIMEDOUT {
				return err
			}

		default:
			return nil
		}
	}
}

// Raw is a process that answers: through one cache line while both spin, or with a
// futex while both sleep.
type Raw struct {
	b     *board
	child *child
	n     uint32
}

// NewRaw starts the process.
func NewRaw() (*Raw, error) {
	fd, err := unix.MemfdCreate("capgpu-bench", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make the shared page: %w", err)
	}

	file := os.NewFile(uintptr(fd), "capgpu-bench")
	defer file.Close()
	if err := file.Truncate(boardBytes); err != nil {
		return nil, err
	}

	r := &Raw{}
	if r.b, err = mapBoard(fd); err != nil {
		return nil, err
	}
	if r.child, err = spawn("raw", "", file); err != nil {
		return nil, err
	}

	return r, r.enter(modeIdle)
}

const answerTimeout = 5 * time.Second

// enter sets the process's mode and waits until it is in effect.
func (r *Raw) enter(mode uint32) error {
	r.b.mode.Store(mode)
	for start := time.Now(); r.b.ack.Load() != mode; runtime.Gosched() {
		// Wake it repeatedly: it may have been about to sleep.
		wake(r.b.mode)
		wake(r.b.ping)
		if time.Since(start) > answerTimeout {
			return fmt.Errorf("the answering process is silent: %v", r.child.output())
		}
	}
	return nil
}

// spinRound is a round trip while both spin.
func (r *Raw) spinRound() error {
	r.n++
	n := r.n
	r.b.ping.Store(n)
	for spins := uint64(0); r.b.pong.Load() != n; spins++ {
		if spins > 1<<33 {
			return fmt.Errorf("the answering process is silent: %v", r.child.output())
		}
	}
	return nil
}

// futexRound is a round trip while both sleep.
func (r *Raw) futexRound() error {
	r.n++
	n := r.n
	r.b.ping.Store(n)
	wake(r.b.ping)
	for {
		seen := r.b.pong.Load()
		if seen == n {
			return nil
		}
		if err := await(r.b.pong, seen, answerTimeout); err != nil {
			return fmt.Errorf("wait for the answering process: %w", err)
		}
	}
}

// Spin runs f while the process spins; f gets the round trip.
func (r *Raw) Spin(f func(round func() error) error) error {
	return r.during(modeSpin, r.spinRound, f)
}

// Futex runs f while the process sleeps on its futex; f gets the round trip.
func (r *Raw) Futex(f func(round func() error) error) error {
	return r.during(modeFutex, r.futexRound, f)
}

func (r *Raw) during(mode uint32, round func() error, f func(func() error) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r.n = r.b.ping.Load()
	if err := r.enter(mode); err != nil {
		return err
	}
	err := f(round)
	if idle := r.enter(modeIdle); err == nil {
		err = idle
	}
	return err
}

// Close ends the process.
func (r *Raw) Close() error {
	r.b.mode.Store(modeQuit)
	wake(r.b.mode)
	err := r.child.close()
	if unmapped := r.b.close(); err == nil {
		err = unmapped
	}
	return err
}
