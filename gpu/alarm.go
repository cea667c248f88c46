package gpu

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// alarm wakes runDevice when a deadline is near. The runtime's timers are late by up to a
// millisecond in a process that sleeps: it counts that sleep in whole ones (epoll_pwait(2)).
// This one is a descriptor that is read like any other (timerfd_create(2)).
type alarm struct {
	f    *os.File // nil: there is none, and the runtime's timers have to do
	conn syscall.RawConn
	spec unix.ItimerSpec
}

// exactAlarms is false in this package's tests.
var exactAlarms = true

// newAlarm makes one; where time is virtual it does nothing.
func newAlarm(needed bool) *alarm {
	if !needed {
		return &alarm{}
	}
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return &alarm{}
	}
	f := os.NewFile(uintptr(fd), "alarm")
	conn, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return &alarm{}
	}
	return &alarm{f: f, conn: conn}
}

// set has it go off once, so much later, instead of when it would have.
func (a *alarm) set(d time.Duration) {
	if a.f == nil {
		return
	}
	a.spec.Value = unix.NsecToTimespec(int64(max(d, 1)))
	_ = a.conn.Control(func(fd uintptr) { _ = unix.TimerfdSettime(int(fd), 0, &a.spec, nil) }) // else the runtime's timer ends it
}

// run calls f each time that it goes off, until close.
func (a *alarm) run(f func()) {
	if a.f == nil {
		return
	}
	var times [8]byte
	for {
		if _, err := a.f.Read(times[:]); err != nil {
			return
		}
		f()
	}
}

func (a *alarm) close() {
	if a.f != nil {
		a.f.Close()
	}
}
