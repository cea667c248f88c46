package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// actions are an intruder's attempts.
var actions = map[string]func() error{
	"nothing": func() error { return nil },
	"work":    work,
	"sleep": func() error {
		_, err := unix.Write(3, []byte{1})
		time.Sleep(time.Minute)
		return err
	},

	"open a file":         open("/proc/version", unix.O_RDONLY),
	"open a device":       open("/dev/null", unix.O_RDWR),
	"make a file":         open("/tmp/capgpu-intruder", unix.O_CREAT|unix.O_WRONLY),
	"make a file in root": open("/intruder", unix.O_CREAT|unix.O_WRONLY),
	"look at a process":   open("/proc/1/status", unix.O_RDONLY),
	"look at its parent":  func() error { _, err := os.ReadFile("/proc/" + os.Getenv("TARGET_PID") + "/environ"); return err },
	"read a secret":       func() error { _, err := os.ReadFile(os.Getenv("TARGET_FILE")); return err },
	"list the root": func() error {
		entries, err := os.ReadDir("/")
		return errors.Join(err, fmt.Errorf("%d entries", len(entries)))
	},
	"use a descriptor": func() error {
		fd, err := strconv.Atoi(os.Getenv("TARGET_FD"))
		var st unix.Stat_t
		return errors.Join(err, unix.Fstat(fd, &st))
	},
	"how soon killed": func() error {
		b, err := os.ReadFile("/proc/self/oom_score_adj")
		return errors.Join(err, errors.New(strings.TrimSpace(string(b))))
	},
	"open the node":     open("/dev/zero", unix.O_RDWR),
	"open other node":   open("/dev/full", unix.O_RDWR),
	"write the library": func() error { return open(os.Getenv("TARGET_FILE"), unix.O_WRONLY)() },
	"see others":        seeOthers,
	"ioctl F":           raw(unix.SYS_IOCTL, 1<<30, 0x4600, 0),
	"map both": func() error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		return err
	},
	"make a node":   func() error { return unix.Mknod("/tmp/capgpu-node", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) },
	"make a folder": func() error { return unix.Mkdir("/intruder", 0o700) },

	"make a socket": func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); return err },
	"make a packet": func() error { _, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0); return err },
	"connect":       func() error { return unix.Connect(0, &unix.SockaddrUnix{Name: "@x"}) },
	"dial":          func() error { _, err := net.DialTimeout("tcp", os.Getenv("TARGET_ADDR"), 5*time.Second); return err },
	"dial abstract": func() error { _, err := net.Dial("unix", os.Getenv("TARGET_ADDR")); return err },
	"bind":          func() error { return unix.Bind(0, &unix.SockaddrUnix{Name: "@x"}) },
	"pair of inet":  func() error { _, err := unix.Socketpair(unix.AF_INET, unix.SOCK_STREAM, 0); return err },
	"socketpair": func() error {
		_, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		return err
	},
	"datagram pair": func() error {
		_, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	},
	"pidfd of a peer":   func() error { _, err := unix.GetsockoptInt(0, unix.SOL_SOCKET, unix.SO_PEERPIDFD); return err },
	"allow descriptors": func() error { return unix.SetsockoptInt(0, unix.SOL_SOCKET, unix.SO_PASSCRED, 1) },
	"kill":              func() error { return unix.Kill(target(), unix.SIGKILL) },
	"kill a thread":     func() error { return unix.Tgkill(target(), target(), unix.SIGKILL) },
	"trace":             func() error { return unix.PtraceSeize(target()) },
	"read memory":       raw(unix.SYS_PROCESS_VM_READV, uintptr(1), 0, 0),
	"ioctl":             raw(unix.SYS_IOCTL, 0, 0x3b64, 0), // VFIO_GET_API_VERSION
	"exec":              func() error { return unix.Exec("/proc/self/exe", []string{"x"}, nil) },
	"exec a descriptor": raw(unix.SYS_EXECVEAT, 0, 0, 0),
	"fork":              fork(0),
	"vfork":             fork(unix.CLONE_VFORK),
	"clone3":            raw(unix.SYS_CLONE3, 0, 0, 0),
	"unshare":           func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"join":              raw(unix.SYS_SETNS, 0, 0, 0),
	"protect":           raw(unix.SYS_MPROTECT, 0, 0, unix.PROT_EXEC),
	"remap":             raw(unix.SYS_MREMAP, 0, 0, 0),
	"map code": func() error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		return err
	},
	"map data":      mapAnonymous(0),
	"mount":         func() error { return unix.Mount("x", "/", "tmpfs", 0, "") },
	"chroot":        func() error { return unix.Chroot("/") },
	"bpf":           raw(unix.SYS_BPF, 0, 0, 0),
	"io_uring":      raw(unix.SYS_IO_URING_SETUP, 1, 0, 0),
	"userfault":     raw(unix.SYS_USERFAULTFD, 0, 0, 0),
	"perf":          raw(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0),
	"load a module": raw(unix.SYS_FINIT_MODULE, 0, 0, 0),
	"be traced":     raw(unix.SYS_PRCTL, unix.PR_SET_PTRACER, 0, 0),
	"set a user":    raw(unix.SYS_SETUID, 0, 0, 0),
	"keep a key":    raw(unix.SYS_KEYCTL, 0, 0, 0),
	"punch nothing": func() error { return unix.Fallocate(0, 0, 0, 4096) },
	"lease":         func() error { _, err := unix.FcntlInt(0, unix.F_SETLEASE, 0); return err },
	"make shared memory": func() error {
		_, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		return err
	},
	"make huge shared memory": func() error {
		_, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB)
		return err
	},
	"map huge pages":       mapAnonymous(unix.MAP_HUGETLB),
	"map locked pages":     mapAnonymous(unix.MAP_LOCKED),
	"punch by advice":      raw(unix.SYS_MADVISE, 0, 4096, unix.MADV_REMOVE),
	"merge pages":          raw(unix.SYS_MADVISE, 0, 4096, unix.MADV_MERGEABLE),
	"make a pipe":          func() error { return unix.Pipe2(make([]int, 2), 0) },
	"tomorrow's call":      raw(4000, 0, 0, 0),
	"take a lot of memory": func() error { return hoard(512 << 20) },
	"fork bomb":            func() error { return bomb(64) },
	"capabilities": func() error {
		fields, err := statusFields("/proc/thread-self/status")
		return errors.Join(err, errors.New(fields["CapEff"]+" "+fields["CapBnd"]))
	},
}

func mapAnonymous(flags int) func() error {
	return func() error {
		_, err := unix.Mmap(-1, 0, 2<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|flags)
		return err
	}
}

func target() int {
	var pid int
	fmt.Sscan(os.Getenv("TARGET_PID"), &pid)
	return pid
}

func open(path string, flags int) func() error {
	return func() error {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

func raw(nr, a, b, c uintptr) func() error {
	return func() error {
		if _, _, errno := unix.Syscall(nr, a, b, c); errno != 0 {
			return errno
		}
		return nil
	}
}

// fork makes a process that exits at once.
func fork(flags uintptr) func() error {
	return func() error {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			return errno
		}
		if pid == 0 {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		var status unix.WaitStatus
		_, err := unix.Wait4(int(pid), &status, 0, nil)
		return err
	}
}

// bomb makes n processes that stay.
func bomb(n int) error {
	for i := range n {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			return fmt.Errorf("after %d: %w", i, errno)
		}
		if pid == 0 {
			var pause unix.Timespec
			pause.Sec = 60
			unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	return nil
}

// hoard touches so many bytes.
func hoard(bytes int) error {
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return nil
}

// work does the usual acts of a Go program: threads, garbage, timers, preemption, a recovered
// fault, a stack trace.
func work() error {
	done := make(chan int, 8)
	for range 8 {
		go func() {
			runtime.LockOSThread()
			for i := 0; ; i++ { // preempted by signal
				select {
				case done <- i:
					return // the thread ends
				default:
				}
			}
		}()
	}
	for range 8 {
		<-done
	}
	for range 50 {
		runtime.KeepAlive(make([]byte, 4<<20)) // garbage, collected and given back
	}
	debug.FreeOSMemory()
	time.Sleep(time.Millisecond)
	if err := fault(); err == nil || !strings.Contains(err.Error(), "nil pointer") {
		return fmt.Errorf("a fault gave %v", err)
	}
	buf := make([]byte, 1<<16)
	if runtime.Stack(buf, true) == 0 {
		return errors.New("no stack")
	}
	_ = time.Now().Format(time.RFC1123)
	return nil
}

func fault() (err error) {
	defer func() { err = recover().(error) }()
	var p *[1 << 20]byte
	p[1<<19] = 1
	return nil
}

// filterThread puts a filter on the calling thread alone.
func filterThread(filter []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return errno
	}
	return nil
}

// seeOthers returns the processes that /proc shows.
func seeOthers() error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	var pids []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, e.Name())
		}
	}
	return errors.New(strings.Join(pids, " "))
}
