package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archCalls are those of a driver that have another name elsewhere.
var archCalls = []call{
	{"ppoll", unix.SYS_PPOLL, nil, "is there more on a socket?"},
	{"prlimit64", unix.SYS_PRLIMIT64, nil, "how many descriptors may be open?"},
}
