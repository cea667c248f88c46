package sandbox

import "golang.org/x/sys/unix"

const sysNewfstatat = unix.SYS_NEWFSTATAT

// oldCalls are calls that newer architectures do not have, in both stages.
var oldCalls = []call{
	{"poll", unix.SYS_POLL, nil, "waits for the device", 0},
	{"epoll_wait", unix.SYS_EPOLL_WAIT, nil, "the same", 0},
	{"arch_prctl", unix.SYS_ARCH_PRCTL, nil, "a new thread", 0},
}

// oldOpeningCalls are those of the first stage.
var oldOpeningCalls = []call{
	{"open", unix.SYS_OPEN, nil, "what the prepared root has", 0},
	{"stat", unix.SYS_STAT, nil, "the same", 0},
	{"lstat", unix.SYS_LSTAT, nil, "the same", 0},
	{"access", unix.SYS_ACCESS, nil, "the same", 0},
	{"readlink", unix.SYS_READLINK, nil, "the same", 0},
	{"dup2", unix.SYS_DUP2, nil, "descriptors that it has", 0},
}
