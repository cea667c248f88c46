package shm

import "golang.org/x/sys/unix"

// Yield yields the processor (sched_yield(2)): for a thread that makes or frees many pages
// while no caller waits.
func Yield() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) } // it cannot fail
