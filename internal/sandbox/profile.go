package sandbox

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Profile is the needs of one kind of process.
type Profile struct {
	name        string
	threads     uint64 // at most; Go needs one for each call that blocks
	descriptors uint64 // at most; 0: as the parent allows
	extra       []call // besides common
	whole       bool   // extra is all
	// other is what becomes of another call; 0: it ends the process.
	other uint32
	own   int // filters that a process has when it is served; 0: one
}

// Driver is the profile of a driver process: it makes shared memory, and maps its grants. It
// opens no file.
var Driver = &Profile{name: "driver", threads: 1024, extra: driverCalls}

// Gate is the stricter profile of a gate: it moves messages between two sockets, and maps
// memory that it receives. It makes no kernel object.
var Gate = &Profile{name: "gate", threads: 256, descriptors: 4096, extra: gateCalls}

// Engine is the profile of an engine process: it holds the nodes of a device, and code that is
// not ours. Launch puts it in force; a second filter (Seal) follows when the device is open.
var Engine = &Profile{name: "engine", threads: 512, descriptors: 4096, extra: engineCalls, whole: true, other: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM), own: 2}

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
	if p.whole {
		return slices.Concat(selfCalls(pid), p.extra)
	}
	return slices.Concat(selfCalls(pid), common, p.extra)
}

func selfCalls(pid int) []call {
	return []call{{"tgkill", unix.SYS_TGKILL, []condition{{arg: 0, oneOf: []uint32{uint32(pid)}}},
		"the runtime preempts its own threads by SIGURG, and aborts by SIGABRT", 0}}
}
