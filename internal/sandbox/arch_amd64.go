package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// archCalls are those of a driver that have another name elsewhere.
var archCalls = []call{
	{"poll", unix.SYS_POLL, nil, "is there more on a socket?"},
	{"getrlimit", unix.SYS_GETRLIMIT, nil, "how many descriptors may be open?"},
}
