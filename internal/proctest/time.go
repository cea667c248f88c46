package proctest

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// CPU is the processor time that f takes on its own thread. Other than the time on the
// clock it does not grow while other programs have the processors.
func CPU(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun := threadTime()
	f()
	return threadTime() - begun
}

func threadTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		panic(fmt.Sprintf("proctest: getrusage: %v", err)) // Linux has it since 2.6.26
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
