package sandbox

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Profile is what one kind of process needs of the kernel.
type Profile struct {
	name        string
	threads     uint64 // at most; Go needs one for each call that blocks
	descriptors uint64 // at most; 0: what the parent allows
	extra       []call // besides common
}

// Driver is the profile of a driver process: it makes shared memory, and maps what
// it is granted. It opens nothing.
var Driver = &Profile{name: "driver", threads: 1024, extra: driverCalls}

// Gate is the stricter profile of a gate: it moves messages between two sockets,
// and maps what it is handed. It makes no object of the kernel's at all.
var Gate = &Profile{name: "gate", threads: 256, descriptors: 4096, extra: gateCalls}

// Name as logs show it.
func (p *Profile) Name() string { return p.name }

// Calls is how many system calls the profile allows.
func (p *Profile) Calls() int { return len(p.calls(0)) }

// Names are the system calls that the profile allows, some of them only with
// certain arguments.
func (p *Profile) Names() (names []string) {
	for _, c := range p.calls(0) {
		names = append(names, c.name)
	}
	return names
}

// calls is the whole table for the process of this number.
func (p *Profile) calls(pid int) []call {
	self := call{"tgkill", unix.SYS_TGKILL, []condition{{arg: 0, oneOf: []uint32{uint32(pid)}}},
		"the runtime preempts its own threads by SIGURG, and aborts by SIGABRT"}
	return slices.Concat([]call{self}, common, p.extra)
}
