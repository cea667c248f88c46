//go:build amd64 && linux

package tick

import "golang.org/x/sys/unix"

// counter reads the time-stamp counter. It is not ordered against the instructions
// around it: a reading is off by some tens of cycles.
//
//go:noescape
func counter() uint64

// cpuid is the instruction of that name.
//
//go:noescape
func cpuid(leaf, sub uint32) (eax, ebx, ecx, edx uint32)

// usable says that the counter runs at one speed. Intel SDM vol. 3, 19.17.1: CPUID
// 80000007H, EDX bit 8.
var usable = invariant()

func invariant() bool {
	if most, _, _, _ := cpuid(0x80000000, 0); most < 0x80000007 {
		return false
	}
	_, _, _, edx := cpuid(0x80000007, 0)
	return edx&(1<<8) != 0
}

// mostApart is how many ticks a reading of the system's clock may take: with more it
// was interrupted.
const mostApart = 20_000

// readPair asks the system itself, not package time: in a bubble of testing/synctest
// that has another time.
func readPair() (p pair, ok bool) {
	for range 4 {
		var ts unix.Timespec
		before := counter()
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
			return pair{}, false
		}
		after := counter()
		if apart := after - before; apart < mostApart {
			return pair{before + apart/2, ts.Nano()}, true
		}
	}
	return pair{}, false
}
