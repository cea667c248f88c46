package sandbox

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// The parent tells the child these in its environment.
const (
	requireEnv    = "CAPGPU_SANDBOX_REQUIRE"    // what must be in force, else Enter fails
	namespacesEnv = "CAPGPU_SANDBOX_NAMESPACES" // "1": it runs in namespaces of its own
)

// Enter gives up, for good, every right that the profile does not need, and logs one line
// about the mechanisms in force. A program calls it once, when it has found its descriptors
// and has made them close-on-exec, and before it reads from them: Enter closes every other
// inherited one. An error means that a required mechanism is missing, or that one of the
// host's failed; the program must then end.
//
// Nothing can be undone, and there is no second try: on an error the process may
// already have lost some of its rights.
func Enter(p *Profile, log *slog.Logger) error {
	return steps{profile: p, root: emptyRoot, rootName: "empty"}.take(log)
}

// take takes the steps.
func (s steps) take(log *slog.Logger) error {
	require, err := split(os.Getenv(requireEnv))
	if err != nil {
		return fmt.Errorf("%s: %w", requireEnv, err)
	}

	// The name that ps shows: the parent executed a descriptor, which has none.
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)

	// If the host is out of memory, the kernel kills this process rather than the parent: the
	// manager replaces it. Without this it would inherit the parent's score (OOMScoreAdjust=
	// of the unit).
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)
	s.namespaces = os.Getenv(namespacesEnv) == "1"
	inForce, missing, err := s.enter()
	if err != nil {
		return err
	}

	log.Info("sandboxed", inForce...)
	for _, m := range missing {
		log.Warn("not confined", "by", m.Mechanism, "why", m.Reason)
	}

	return refusal(require, missing)
}

// steps are what differs between processes that confine themselves.
type steps struct {
	profile    *Profile
	namespaces bool
	root       func() error
	rootName   string
	paths      []pathRight // that landlock leaves
	file       int         // a descriptor of a file that stays open; 0: none does
}

// enter does it, and returns the mechanisms in force (as attributes for a log) and the
// missing ones.
func (s steps) enter() (inForce []any, missing []Missing, err error) {
	miss := func(m Mechanism, reason error) { missing = append(missing, Missing{m, reason}) }
	inForce = []any{"profile", s.profile.name}
	if err := checkThreads(); err != nil {
		for _, m := range []Mechanism{Filesystem, Capabilities, Landlock, Seccomp} {
			miss(m, err)
		}
		return inForce, missing, nil
	}

	settle()
	if err := closeInherited(s.file); err != nil {
		miss(Filesystem, err)
	} else if !s.namespaces {
		miss(Filesystem, errors.New("the process has no mount namespace of its own"))
	} else if err := s.root(); err != nil {
		miss(Filesystem, err)
	} else {
		inForce = append(inForce, "filesystem", s.rootName)
	}

	limitSelf(s.profile, s.namespaces)
	if err := noNewPrivs(); err != nil {
		for _, m := range []Mechanism{Capabilities, Landlock, Seccomp} {
			miss(m, err)
		}
		return inForce, missing, nil
	}

	if err := dropCapabilities(); err != nil {
		miss(Capabilities, err)
	} else {
		inForce = append(inForce, "capabilities", "none")
	}

	if abi, err := landlockABI(); err != nil {
		miss(Landlock, err)
	} else if err := restrict(landlockRules(abi), s.paths); err != nil {
		return inForce, missing, err // the kernel has no record for Check
	} else {
		inForce = append(inForce, "landlock", abi)
	}

	// Last: it takes away calls that the steps above need.
	if auditArch == 0 {
		miss(Seccomp, fmt.Errorf("there is no table of system calls for %s", runtime.GOARCH))
	} else if err := install(assemble(auditArch, s.profile.calls(os.Getpid()), s.profile.other)); err != nil {
		miss(Seccomp, err)
	} else {
		inForce = append(inForce, "seccomp", s.profile.Calls())
	}

	return inForce, missing, nil
}

// settle makes calls now that the Go runtime would make later, when they are no longer
// allowed.
func settle() {
	_ = time.Now().Local().Format(time.RFC3339) // reads the time zone
	// The runtime follows its cgroup's CPU limit by reading files, until the
	// number is set.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	// The first pollable descriptor makes the runtime's poller.
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
}

// closeInherited closes descriptors that a careless parent left open: files, directories and
// devices, which are ways around an empty root and are never passed on purpose; and those of
// every other kind that the program has not made close-on-exec. A close-on-exec descriptor
// cannot be inherited, so it is the runtime's or one that the program has found. The standard
// descriptors stay: they may be a terminal or a log; so does but.
func closeInherited(but int) error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list the open descriptors: %w", err)
	}

	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= 2 || fd == but {
			continue
		}
		var st unix.Stat_t
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || unix.Fstat(fd, &st) != nil {
			continue // the list itself, closed by now
		}
		if flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
			continue
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG, unix.S_IFDIR, unix.S_IFCHR, unix.S_IFBLK:
			unix.Close(fd)
		}
	}

	return nil
}

// limitSelf sets resource limits: they bound the cost of a mistake, also without a cgroup.
// Lowering them always works.
func limitSelf(p *Profile, namespaces bool) {
	type limit struct {
		resource int
		max      uint64
	}
	limits := []limit{
		{unix.RLIMIT_CORE, 0}, // a core would hold tenants' memory
		{unix.RLIMIT_MEMLOCK, 0},
		{unix.RLIMIT_MSGQUEUE, 0},
	}
	if p.descriptors != 0 {
		limits = append(limits, limit{unix.RLIMIT_NOFILE, p.descriptors})
	}
	if namespaces { // elsewhere it would count the user's other processes
		limits = append(limits, limit{unix.RLIMIT_NPROC, p.threads})
	}

	for _, l := range limits {
		var old unix.Rlimit
		if unix.Getrlimit(l.resource, &old) == nil {
			_ = unix.Setrlimit(l.resource, &unix.Rlimit{Cur: min(old.Max, l.max), Max: min(old.Max, l.max)})
		}
	}
}
