package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// Launched is the program that a launcher becomes.
type Launched struct {
	Program string   `json:"program"` // its name, an absolute path
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env,omitempty"` // all of it
	Root    Root     `json:"root"`
}

// ParseLaunched reads what Text wrote.
func ParseLaunched(text []byte) (l Launched, err error) {
	if err := json.Unmarshal(text, &l); err != nil {
		return l, fmt.Errorf("read what is to be launched: %w", err)
	}
	for _, p := range append([]string{l.Program}, append(append(append([]string{}, l.Root.Run...), l.Root.Read...), l.Root.Nodes...)...) {
		if !filepath.IsAbs(p) || filepath.Clean(p) == "/" {
			return l, fmt.Errorf("%q is no absolute path below the root", p)
		}
	}
	return l, nil
}

// Text is one argument for a launcher.
func (l Launched) Text() string {
	b, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("sandbox: %v", err)) // strings always can be
	}
	return string(b)
}

// Launch confines this process as Enter does, but with a root directory that has what an
// engine needs, and then becomes the engine, which inherits all of it, and the descriptors 3
// to 2+keep. Descriptor 3+keep is the engine's program, open for reading: its folder may be
// closed to this user, and is not in the root. Launch returns only with an error. It has to be
// in a program of its own: one that loads C libraries counts as cgo for Go, which then cannot
// take rights from all threads.
func Launch(l Launched, keep int, log *slog.Logger) error {
	program := 3 + keep
	for fd := 3; fd <= program; fd++ { // else they are closed as inherited ones
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			return fmt.Errorf("descriptor %d is missing: an engine is started by device-manager (%w)", fd, err)
		}
	}
	paths := append(l.Root.rights(), pathRight{fd: program, path: l.Program, rights: landlockRun})
	if err := (steps{profile: Engine, root: l.Root.make, rootName: "prepared", paths: paths, file: program}).take(log); err != nil {
		return err
	}

	for fd := 3; fd < program; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	for { // EAGAIN: a thread was just being made
		err := execDescriptor(program, append([]string{l.Program}, l.Args...), l.Env)
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		return fmt.Errorf("start the engine %s: %w (it must be executable for everyone, and its interpreter be among its libraries)", l.Program, err)
	}
}

// Seal sets the second filter of an engine, on all its threads, those of libraries too. The
// engine calls it when its device is open and its self-test has passed, before it says that
// it is ready; nothing can be undone. A call outside of it ends the process.
//
// It works in programs that are built with cgo.
func Seal(s Sealed) error {
	if auditArch == 0 {
		return errors.New("there is no table of system calls for this architecture")
	}
	settle()
	filter := assemble(auditArch, s.calls(unix.Getpid()), 0)
	err := install(filter)
	if !errors.Is(err, unix.EACCES) {
		return err
	}

	// It was started without the launcher: nothing has seen to it that no program that it
	// starts gets privileges.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	return install(filter)
}
