package sandbox

import "golang.org/x/sys/unix"

// The tables. Each row is a call that a working process makes after Enter;
// manager.TestTablesAreWhatIsCalled traces them. Any other call ends the process: among
// others open, openat, execve, socket, connect, bind, ioctl, mprotect, mremap, ptrace, kill,
// fork, unshare, mount, bpf, io_uring and every call that the kernel will have tomorrow.

// common are the calls of Go's runtime (1.26, runtime/sys_linux_*.s) and of both ends of a
// socket.
var common = []call{
	// Memory. No page becomes executable, and no mapping changes its protection: a register
	// window granted for reading stays so. No call takes the host's huge pages, which no
	// limit of memory counts, and madvise changes only the process's own memory: MADV_REMOVE
	// would punch out shared memory.
	{"mmap", unix.SYS_MMAP, []condition{{arg: 2, not: unix.PROT_EXEC}, {arg: 3, not: unix.MAP_HUGETLB | unix.MAP_LOCKED}}, "heap, stacks; what came by a socket", 0},
	{"munmap", unix.SYS_MUNMAP, nil, "the same", 0},
	{"madvise", unix.SYS_MADVISE, []condition{{arg: 2, oneOf: []uint32{
		unix.MADV_DONTNEED, unix.MADV_FREE, unix.MADV_HUGEPAGE, unix.MADV_NOHUGEPAGE, unix.MADV_COLLAPSE,
	}}}, "heap pages go back to the host, or together", 0},
	{"prctl", unix.SYS_PRCTL, []condition{{arg: 0, oneOf: []uint32{unix.PR_SET_VMA}}}, "the runtime names its mappings", 0},

	// Threads of this process, and none of another one.
	{"clone", unix.SYS_CLONE, []condition{{arg: 0, oneOf: []uint32{goThread, goThread | unix.CLONE_SETTLS}}}, "a thread", 0},
	{"exit", unix.SYS_EXIT, nil, "the end of a thread", 0},
	{"exit_group", unix.SYS_EXIT_GROUP, nil, "the end of the process", 0},
	{"futex", unix.SYS_FUTEX, nil, "threads wait for each other", 0},
	{"gettid", unix.SYS_GETTID, nil, "a new thread", 0},
	{"getpid", unix.SYS_GETPID, nil, "a signal to itself", 0},
	{"nanosleep", unix.SYS_NANOSLEEP, nil, "the runtime's monitor", 0},
	{"sched_yield", unix.SYS_SCHED_YIELD, nil, "spinning", 0},
	{"restart_syscall", unix.SYS_RESTART_SYSCALL, nil, "the kernel resumes a sleep with it", 0},
	{"clock_gettime", unix.SYS_CLOCK_GETTIME, nil, "where the host's clock cannot be read without a call", 0},
	{"getrandom", unix.SYS_GETRANDOM, nil, "seeds of maps and of identifiers", 0},

	// Signals: preemption, and the guards of memory that a peer can take away.
	{"rt_sigaction", unix.SYS_RT_SIGACTION, nil, "SIGTERM; a crash", 0},
	{"rt_sigprocmask", unix.SYS_RT_SIGPROCMASK, nil, "a new thread", 0},
	{"rt_sigreturn", unix.SYS_RT_SIGRETURN, nil, "the end of a handler", 0},
	{"sigaltstack", unix.SYS_SIGALTSTACK, nil, "a new thread", 0},

	// Descriptors that it has.
	{"read", unix.SYS_READ, nil, "pipes, sockets, an interrupt's eventfd", 0},
	{"write", unix.SYS_WRITE, nil, "pipes, sockets, standard error", 0},
	{"close", unix.SYS_CLOSE, nil, "any", 0},
	{"fstat", unix.SYS_FSTAT, nil, "what did a peer send?", 0},
	{"fstatfs", unix.SYS_FSTATFS, nil, "has it huge pages?", 0},
	{"fcntl", unix.SYS_FCNTL, []condition{{arg: 1, oneOf: []uint32{
		unix.F_DUPFD_CLOEXEC, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL,
		unix.F_GET_SEALS, unix.F_ADD_SEALS, unix.F_SETPIPE_SZ,
	}}}, "duplicates, O_NONBLOCK, seals, small pipes", 0},
	{"epoll_ctl", unix.SYS_EPOLL_CTL, nil, "the runtime's poller", 0},
	{"epoll_pwait", unix.SYS_EPOLL_PWAIT, nil, "the same", 0},
	{"ppoll", unix.SYS_PPOLL, []condition{{arg: 1, oneOf: []uint32{1}}}, "has a peer hung up, of whom nothing is read now?", 0},

	// Sockets that it has.
	{"recvmsg", unix.SYS_RECVMSG, nil, "control messages with descriptors", 0},
	{"sendmsg", unix.SYS_SENDMSG, nil, "the same", 0},
	{"getsockopt", unix.SYS_GETSOCKOPT, []condition{{arg: 1, oneOf: []uint32{unix.SOL_SOCKET}}, {arg: 2, oneOf: []uint32{
		unix.SO_TYPE, unix.SO_PEERCRED, // SO_PEERPIDFD would give a descriptor of the manager
	}}}, "which kind of socket, and who is the peer?", 0},
}

// driverCalls are the calls of drivers only.
var driverCalls = []call{
	{"memfd_create", unix.SYS_MEMFD_CREATE, []condition{{arg: 1, oneOf: []uint32{unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING}}}, "rings, and memory that clients map", 0},
	{"ftruncate", unix.SYS_FTRUNCATE, nil, "their size", 0},
	{"fallocate", unix.SYS_FALLOCATE, []condition{{arg: 1, oneOf: []uint32{unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE}}}, "revoked memory is punched out", 0},
	{"pipe2", unix.SYS_PIPE2, nil, "wake pipes of queues", 0},
	{"epoll_create1", unix.SYS_EPOLL_CREATE1, nil, "the reactor sleeps on all doorbells", 0},
	{"timerfd_create", unix.SYS_TIMERFD_CREATE, []condition{{arg: 0, oneOf: []uint32{unix.CLOCK_MONOTONIC}}}, "deadlines to a fraction of a millisecond", 0},
	{"timerfd_settime", unix.SYS_TIMERFD_SETTIME, nil, "the same", 0},
	// A datagram socket could send to an address.
	{"socketpair", unix.SYS_SOCKETPAIR, []condition{{arg: 0, oneOf: []uint32{unix.AF_UNIX}}, {arg: 1, oneOf: []uint32{unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC}}}, "the control socket of a restricted session", 0},
	{"setsockopt", unix.SYS_SETSOCKOPT, []condition{{arg: 1, oneOf: []uint32{unix.SOL_SOCKET}}, {arg: 2, oneOf: []uint32{unix.SO_PASSRIGHTS}}}, "no descriptors from a client", 0},
}

// gateCalls are the calls of gates only.
var gateCalls = []call{
	{"getsockname", unix.SYS_GETSOCKNAME, nil, "package net names both ends of the connection that it is handed", 0},
	{"getpeername", unix.SYS_GETPEERNAME, nil, "the same", 0},
}

// goThread are the flags of the runtime's clone (runtime/os_linux.go, cloneFlags).
const goThread = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD
