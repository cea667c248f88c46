package sandbox

import (
	"golang.org/x/sys/unix"
)

// A call is one row of a profile: a system call that a process may make.
type call struct {
	name string
	nr   uint32
	only []condition // all of them must hold; nil: with any arguments
	why  string
	// fails: the call is not made, and this is its error.
	fails unix.Errno
}

// condition is about one argument. Arguments that the kernel takes as 32 bits are
// compared as such: it ignores the upper half, and so must we.
type condition struct {
	arg   uint32   // 0 to 5
	mask  uint32   // bits that are looked at; 0: all
	not   uint32   // bits that must be clear
	oneOf []uint32 // if there are any: the only values
}

// Offsets in struct seccomp_data (linux/seccomp.h, 6.12). The low half of an
// argument comes first: both architectures that we build for are little-endian.
const (
	nrOff   = 0
	archOff = 4
	argOff  = 16
)

// assemble makes the filter: a call that is not in calls, or comes by another architecture's
// entry (32-bit, x32), ends the process.
//
// The order does not matter for speed: the kernel runs a filter once for each
// call that it allows with any arguments and remembers that in a bitmap
// (SECCOMP_CACHE, Linux 5.11). Only those with conditions run it each time; they
// come first.
//
// other takes the place of the end of the process for a call of this architecture; 0: it ends.
func assemble(arch uint32, calls []call, other uint32) []unix.SockFilter {
	kill := ret(unix.SECCOMP_RET_KILL_PROCESS)
	if other == 0 {
		other = unix.SECCOMP_RET_KILL_PROCESS
	}
	f := []unix.SockFilter{load(archOff), jumpEqual(arch, 1, 0), kill, load(nrOff)}
	for _, c := range calls {
		if c.only != nil {
			f = append(f, block(c, other)...)
		}
	}
	for _, c := range calls {
		if c.only == nil {
			f = append(f, jumpEqual(c.nr, 0, 1), c.allow())
		}
	}
	return append(f, ret(other))
}

// block is the program for a call with conditions. It does not continue after itself for that
// call: one row decides.
func block(c call, other uint32) []unix.SockFilter {
	var body []unix.SockFilter
	for _, cond := range c.only {
		body = append(body, load(argOff+8*cond.arg))
		if cond.mask != 0 {
			body = append(body, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: cond.mask})
		}
		if cond.not != 0 {
			body = append(body, jumpSet(cond.not, 0, 1), ret(other))
		}
		if n := len(cond.oneOf); n > 0 {
			for i, v := range cond.oneOf {
				body = append(body, jumpEqual(v, uint8(n-i), 0)) // over the rest and the kill
			}
			body = append(body, ret(other))
		}
	}

	body = append(body, c.allow())
	return append([]unix.SockFilter{jumpEqual(c.nr, 0, uint8(len(body)))}, body...)
}

// allow lets the call through, or makes it fail as its row says.
func (c call) allow() unix.SockFilter {
	if c.fails != 0 {
		return ret(unix.SECCOMP_RET_ERRNO | uint32(c.fails))
	}
	return ret(unix.SECCOMP_RET_ALLOW)
}

func load(off uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
}

func jumpEqual(k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

func jumpSet(k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

func ret(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}
