package sandbox

import (
	"slices"

	"golang.org/x/sys/unix"
)

// An engine runs a vendor's library, which is not ours to change and differs by version. So it
// has two filters. The first one is there when its program starts, and lasts until its device
// is open: a call that is not in its table fails with EPERM, as a library may try what it can
// do without. The second one (Seal) is set by the engine itself when nothing is left to be
// opened: another call ends the process. docs/gpus.md, section 3, has what NVIDIA's library
// was seen to call.

// anyThread are the flags of the threads of C libraries: glibc 2.36 and musl 1.2, pthread_create.
var anyThread = condition{arg: 0, oneOf: []uint32{
	goThread, goThread | unix.CLONE_SETTLS,
	goThread | unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID,
	goThread | unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID | unix.CLONE_DETACHED,
}}

// notBoth admits each protection but writable and executable at once.
var notBoth = condition{arg: 2, oneOf: []uint32{0, 1, 2, 3, unix.PROT_EXEC, unix.PROT_EXEC | unix.PROT_READ}}

// libraryCalls are the calls of C libraries and compilers besides common, in both stages.
var libraryCalls = []call{
	{"clone", unix.SYS_CLONE, []condition{anyThread}, "a thread", 0},
	{"clone3", unix.SYS_CLONE3, nil, "its flags cannot be seen; C libraries use clone then", unix.ENOSYS},
	{"set_robust_list", unix.SYS_SET_ROBUST_LIST, nil, "a new thread", 0},
	{"rseq", unix.SYS_RSEQ, nil, "a new thread", 0},
	{"prctl", unix.SYS_PRCTL, []condition{{arg: 0, oneOf: []uint32{unix.PR_SET_VMA, unix.PR_SET_NAME, unix.PR_GET_NAME}}}, "names of mappings and threads", 0},
	{"sched_getaffinity", unix.SYS_SCHED_GETAFFINITY, nil, "how many processors are there?", 0},
	{"sched_setaffinity", unix.SYS_SCHED_SETAFFINITY, []condition{{arg: 0, oneOf: []uint32{0}}}, "threads of a compiler", 0},
	{"getcpu", unix.SYS_GETCPU, nil, "which processor is this?", 0},
	{"sysinfo", unix.SYS_SYSINFO, nil, "how much memory is there?", 0},
	{"clock_nanosleep", unix.SYS_CLOCK_NANOSLEEP, nil, "a bounded wait", 0},
	{"clock_getres", unix.SYS_CLOCK_GETRES, nil, "timestamps", 0},
	{"brk", unix.SYS_BRK, nil, "the heap", 0},
	{"mremap", unix.SYS_MREMAP, nil, "the heap", 0},
	{"madvise", unix.SYS_MADVISE, []condition{{arg: 2, oneOf: []uint32{
		unix.MADV_NORMAL, unix.MADV_DONTNEED, unix.MADV_FREE, unix.MADV_HUGEPAGE, unix.MADV_NOHUGEPAGE, unix.MADV_COLLAPSE, unix.MADV_DONTDUMP, unix.MADV_DONTFORK,
	}}}, "heap pages go back to the host; pages of a device are not copied", 0},
	{"lseek", unix.SYS_LSEEK, nil, "files that it has open", 0},
	{"pread64", unix.SYS_PREAD64, nil, "the same", 0},
	{"readv", unix.SYS_READV, nil, "the same", 0},
	{"writev", unix.SYS_WRITEV, nil, "standard error", 0},
	{"fcntl", unix.SYS_FCNTL, []condition{{arg: 1, oneOf: []uint32{
		unix.F_DUPFD, unix.F_DUPFD_CLOEXEC, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_GET_SEALS, unix.F_ADD_SEALS,
	}}}, "duplicates, O_NONBLOCK, seals", 0},
	{"ppoll", unix.SYS_PPOLL, nil, "waits for the device", 0},
	{"memfd_create", unix.SYS_MEMFD_CREATE, []condition{{arg: 1, not: unix.MFD_HUGETLB}}, "memory of a device in software", 0},
	{"ftruncate", unix.SYS_FTRUNCATE, nil, "its size", 0},
	{"pipe2", unix.SYS_PIPE2, nil, "a compiler's threads", 0},
	{"eventfd2", unix.SYS_EVENTFD2, nil, "fences", 0},
	{"epoll_create1", unix.SYS_EPOLL_CREATE1, nil, "the runtime's poller", 0},
	{"getrusage", unix.SYS_GETRUSAGE, nil, "how long did a compile take?", 0},
}

// openingCalls are those of the first stage only.
var openingCalls = []call{
	{"mmap", unix.SYS_MMAP, []condition{{arg: 3, not: unix.MAP_HUGETLB | unix.MAP_LOCKED}}, "libraries", 0},
	{"mprotect", unix.SYS_MPROTECT, nil, "libraries; some make memory writable and executable once", 0},
	{"openat", unix.SYS_OPENAT, nil, "what the prepared root has", 0},
	{"newfstatat", sysNewfstatat, nil, "the same", 0},
	{"statx", unix.SYS_STATX, nil, "the same", 0},
	{"faccessat", unix.SYS_FACCESSAT, nil, "the same", 0},
	{"faccessat2", unix.SYS_FACCESSAT2, nil, "the same", 0},
	{"readlinkat", unix.SYS_READLINKAT, nil, "the same", 0},
	{"getdents64", unix.SYS_GETDENTS64, nil, "the same", 0},
	{"getcwd", unix.SYS_GETCWD, nil, "the same", 0},
	{"statfs", unix.SYS_STATFS, nil, "the same", 0},
	{"ioctl", unix.SYS_IOCTL, nil, "the nodes", 0},
	{"execveat", unix.SYS_EXECVEAT, []condition{{arg: 4, oneOf: []uint32{unix.AT_EMPTY_PATH}}}, "the launcher becomes the engine", 0},
	{"set_tid_address", unix.SYS_SET_TID_ADDRESS, nil, "a new program", 0},
	{"prlimit64", unix.SYS_PRLIMIT64, []condition{{arg: 0, oneOf: []uint32{0}}}, "limits of its own; raising one takes a right", 0},
	{"uname", unix.SYS_UNAME, nil, "which kernel?", 0},
	{"getuid", unix.SYS_GETUID, nil, "who am I?", 0},
	{"geteuid", unix.SYS_GETEUID, nil, "the same", 0},
	{"getgid", unix.SYS_GETGID, nil, "the same", 0},
	{"getegid", unix.SYS_GETEGID, nil, "the same", 0},
	{"getppid", unix.SYS_GETPPID, nil, "the same", 0},
	{"seccomp", unix.SYS_SECCOMP, nil, "the second stage", 0},
	{"dup", unix.SYS_DUP, nil, "descriptors that it has", 0},
	{"dup3", unix.SYS_DUP3, nil, "the same", 0},
	{"setsockopt", unix.SYS_SETSOCKOPT, []condition{{arg: 1, oneOf: []uint32{unix.SOL_SOCKET}}, {arg: 2, oneOf: []uint32{unix.SO_PASSRIGHTS}}}, "its links", 0},
	{"getsockname", unix.SYS_GETSOCKNAME, nil, "package net names both ends of a link", 0},
	{"getpeername", unix.SYS_GETPEERNAME, nil, "the same", 0},
}

// sealedCalls are those of the second stage only.
var sealedCalls = []call{
	{"mmap", unix.SYS_MMAP, []condition{notBoth, {arg: 3, not: unix.MAP_HUGETLB | unix.MAP_LOCKED}}, "compiled programs, memory", 0},
	{"mprotect", unix.SYS_MPROTECT, []condition{notBoth}, "compiled programs", 0},
}

// engineCalls are the calls of the first stage.
var engineCalls = override(override(common, append(slices.Clone(libraryCalls), oldCalls...)), append(slices.Clone(openingCalls), oldOpeningCalls...))

// override replaces the rows of calls that rows has, too.
func override(calls, rows []call) []call {
	var all []call
	for _, c := range calls {
		if !slices.ContainsFunc(rows, func(r call) bool { return r.nr == c.nr }) {
			all = append(all, c)
		}
	}
	return append(all, rows...)
}

// Sealed says what an engine needs when its device is open.
type Sealed struct {
	// Ioctl are the types of the requests that it makes, the second byte (ioctl(2)): 'F' for
	// NVIDIA's driver, 'd' for DRM's. None: no ioctl at all.
	Ioctl []byte
	// Open lets it open what its root and landlock leave: NVIDIA's library opens its nodes
	// anew for each piece of memory.
	Open bool
}

func (s Sealed) calls(pid int) []call {
	calls := override(override(common, append(slices.Clone(libraryCalls), oldCalls...)), sealedCalls)
	if s.Open {
		calls = append(calls, call{"openat", unix.SYS_OPENAT, nil, "its nodes", 0})
	}
	if len(s.Ioctl) > 0 {
		types := condition{arg: 1, mask: 0xff00}
		for _, t := range s.Ioctl {
			types.oneOf = append(types.oneOf, uint32(t)<<8)
		}
		calls = append(calls, call{"ioctl", unix.SYS_IOCTL, []condition{types}, "its nodes", 0})
	}
	return append(calls, selfCalls(pid)...)
}
