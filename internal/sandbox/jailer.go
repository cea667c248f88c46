package sandbox

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Options configure a Jailer.
type Options struct {
	// Require names what must be in force: where it cannot be, nothing is started.
	Require []Mechanism
	// UIDs are the users of the processes, one each, if the manager is root. No other process
	// should have them. Zero: DefaultUIDs.
	UIDs UIDRange
	// GuardDevices keeps every process below a cgroup (a directory) off all device nodes but
	// the character devices of the list, until it is closed: devguard.Attach. nil: no guard.
	GuardDevices func(cgroup string, but [][2]uint32) (io.Closer, error)
	Log          *slog.Logger // nil: nowhere
}

// Jailer confines the children of this process. It inspects the host once.
type Jailer struct {
	require []Mechanism
	log     *slog.Logger
	root    bool // children get users of their own
	uids    *uidPool
	spaces  uintptr // clone flags of the namespaces; 0: none
	groups  *cgroupTree
	guard   io.Closer // nil: devices are not denied
	attach  func(cgroup string, but [][2]uint32) (io.Closer, error)
	abi     int // of landlock; 0: none
	filters int // of system calls, that this process has itself; unknownFilters
	missing []Missing
	cells   atomic.Uint64 // numbers them
}

// namespaceKinds are those that a child gets, by their names in /proc/PID/ns.
var namespaceKinds = []struct {
	name string
	flag uintptr
}{
	{"user", unix.CLONE_NEWUSER}, {"mnt", unix.CLONE_NEWNS}, {"pid", unix.CLONE_NEWPID}, {"net", unix.CLONE_NEWNET},
	{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP},
}

// New inspects the host, removes the leftovers of a crashed predecessor, and fails if the
// host lacks a required mechanism. Other missing ones are logged.
func New(o Options) (_ *Jailer, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.UIDs == (UIDRange{}) {
		o.UIDs = DefaultUIDs
	}
	if err := closeOnExec(); err != nil {
		return nil, err
	}
	if err := o.UIDs.free("/etc"); err != nil {
		return nil, err
	}

	j := &Jailer{require: o.Require, log: o.Log, attach: o.GuardDevices}
	if j.filters, err = ownFilters(); err != nil {
		return nil, fmt.Errorf("look for system call filters of device-manager itself: %w", err)
	}

	miss := func(m Mechanism, reason error) {
		j.missing = append(j.missing, Missing{m, reason})
	}
	if err := j.probeUser(o.UIDs); err != nil {
		miss(User, err)
	}

	if err := j.probeNamespaces(); err != nil {
		miss(Namespaces, err)
		miss(Filesystem, errors.New("without namespaces the root directory cannot be changed"))
	}

	var why error
	if j.groups, why = newCgroupTree(); why != nil {
		why = fmt.Errorf("%w; run device-manager as the system unit does (Delegate=yes), or as root of the cgroup hierarchy", why)
		for _, m := range []Mechanism{Memory, Pids, Devices} {
			miss(m, why)
		}
	} else {
		for m, controller := range map[Mechanism]string{Memory: "memory", Pids: "pids"} {
			if why := j.groups.lacks(controller); why != nil {
				miss(m, why)
			}
		}
		if o.GuardDevices == nil {
			miss(Devices, errors.New("there is no guard of devices"))
		} else if j.guard, why = o.GuardDevices(j.groups.cells, nil); why != nil {
			miss(Devices, why)
		}
	}

	if j.abi, why = landlockABI(); why != nil {
		miss(Landlock, why)
	}

	if auditArch == 0 {
		miss(Seccomp, fmt.Errorf("there is no table of system calls for %s", runtime.GOARCH))
	} else if why := killProcessAvailable(); why != nil {
		miss(Seccomp, why)
	}

	if err := refusal(o.Require, j.missing); err != nil {
		return nil, errors.Join(err, j.Close())
	}

	for _, m := range j.missing {
		j.log.Info("processes are not confined", "by", m.Mechanism, "why", m.Reason)
	}

	return j, nil
}

// closeOnExec keeps the descriptors that this process was started with from its children.
// Those that this process opens itself are close-on-exec from the beginning.
func closeOnExec() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep the open descriptors from children: %w (it needs Linux 5.11)", err)
	}
	return nil
}

// probeUser decides whether children can be other users.
func (j *Jailer) probeUser(r UIDRange) error {
	caps, err := effective("self")
	if err != nil {
		return err
	}
	for _, c := range []int{unix.CAP_SETUID, unix.CAP_SETGID} {
		if caps&(1<<c) == 0 {
			return fmt.Errorf("device-manager runs as user %d without the right to start processes as another one; run it as root, with CAP_SETUID and CAP_SETGID", os.Geteuid())
		}
	}
	if j.uids, err = newUIDPool(r); err != nil {
		return err
	}
	j.root = true
	return nil
}

// probeNamespaces starts a program that does not exist in new namespaces: an
// error of the exec means that everything before it works.
func (j *Jailer) probeNamespaces() error {
	var flags uintptr
	for _, k := range namespaceKinds {
		flags |= k.flag
	}

	j.spaces = flags
	attr := &syscall.SysProcAttr{}
	uid := uint32(os.Geteuid())
	if j.root {
		uid = j.uids.first
	}

	j.confine(attr, uid)
	_, err := os.StartProcess("/nonexistent/capgpu-probe", []string{"probe"}, &os.ProcAttr{Env: []string{}, Sys: attr})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}

	j.spaces = 0
	return fmt.Errorf("the host does not allow user namespaces here (%v); see /proc/sys/user/max_user_namespaces, kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns", err)
}

// confine sets a child's user and its view of the host.
func (j *Jailer) confine(attr *syscall.SysProcAttr, uid uint32) {
	gid := uid
	if !j.root {
		gid = uint32(os.Getegid())
	}

	switch {
	case j.spaces != 0:
		attr.Cloneflags |= j.spaces
		// Inside the user namespace it is root, with no rights outside: mounting an empty
		// root takes that.
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(uid), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(gid), Size: 1}}
		attr.GidMappingsEnableSetgroups = j.root
		attr.Credential = &syscall.Credential{NoSetGroups: !j.root}
	case j.root:
		attr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	}
}

// guardDevices guards the cgroup of an engine.
func (j *Jailer) guardDevices(cgroup string, devices []Device) (io.Closer, error) {
	var but [][2]uint32
	for _, d := range devices {
		but = append(but, [2]uint32{d.Major, d.Minor})
	}
	return j.attach(cgroup, but)
}

// Missing returns the mechanisms that the host lacks.
func (j *Jailer) Missing() []Missing { return j.missing }

// Close removes the cgroups. All cells are closed.
func (j *Jailer) Close() error {
	var errs []error
	if j.guard != nil {
		errs = append(errs, j.guard.Close())
	}
	if j.groups != nil {
		errs = append(errs, j.groups.Close())
	}
	return errors.Join(errs...)
}

// String names what every cell of the Jailer has, for a log.
func (j *Jailer) String() string {
	var have []string
	for _, m := range Mechanisms {
		if !j.lacks(m) {
			have = append(have, string(m))
		}
	}
	return strings.Join(have, ",")
}

func (j *Jailer) lacks(m Mechanism) bool {
	for _, x := range j.missing {
		if x.Mechanism == m {
			return true
		}
	}
	return false
}
