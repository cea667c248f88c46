package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Limits are those of one cell.
type Limits struct {
	MemoryBytes uint64 // 0: none
	Pids        uint64 // threads; 0: none
	// HugeBytes is how much of the host's huge pages the process may be the first to touch,
	// in addition to MemoryBytes. It can make none itself (calls.go): the limit is for shared
	// memory with punched pages.
	HugeBytes uint64
}

// Cell is the confinement of one child. Its parts stay until it is closed.
type Cell struct {
	j       *Jailer
	profile *Profile
	uid     uint32    // of the host
	group   *cgroup   // nil: none
	engine  *Granted  // of an engine's cell; nil: it is another one
	guard   io.Closer // of an engine's devices; nil: none

	mu sync.Mutex
	// +checklocks:mu
	limits Limits
	// +checklocks:mu
	closed bool
}

// Granted is what an engine gets besides its descriptors.
type Granted struct {
	Root    Root
	Devices []Device // of Root.Nodes
	// Groups are of the host: they may open nodes that are not everybody's.
	Groups []uint32
}

// Device is the number of a character device.
type Device struct{ Major, Minor uint32 }

// EngineCell makes a place for an engine, which is started by a program that calls Launch.
func (j *Jailer) EngineCell(name string, g Granted, l Limits) (*Cell, error) {
	return j.cell(name, Engine, &g, l)
}

// Cell makes a place for one process; name is part of its cgroup's name.
func (j *Jailer) Cell(name string, p *Profile, l Limits) (*Cell, error) {
	return j.cell(name, p, nil, l)
}

func (j *Jailer) cell(name string, p *Profile, g *Granted, l Limits) (*Cell, error) {
	var err error
	c := &Cell{j: j, profile: p, engine: g, limits: l, uid: uint32(os.Geteuid())}
	if j.root {
		var spare uint32
		if p == Gate { // tenants can have as many of these as they have connections
			spare = j.uids.count / 4
		}
		if c.uid, err = j.uids.take(spare); err != nil {
			return nil, err
		}
	}

	if j.groups != nil {
		branch := j.groups.cells
		if g != nil {
			branch = j.groups.engines
		}
		if c.group, err = j.groups.cell(branch, fmt.Sprintf("%s-%d", name, j.cells.Add(1)), l); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		if g != nil && j.why(Devices) == nil {
			if c.guard, err = j.guardDevices(c.group.path, g.Devices); err != nil {
				return nil, errors.Join(fmt.Errorf("guard the devices of an engine: %w", err), c.Close())
			}
		}
	}

	return c, nil
}

// SetLimits replaces the limits. Resources that the process has already count.
func (c *Cell) SetLimits(l Limits) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.group != nil && !c.closed {
		if err := c.j.groups.limit(c.group.path, l); err != nil {
			return fmt.Errorf("limit what is in a cgroup: %w", err)
		}
	}
	c.limits = l
	return nil
}

// Start starts cmd in the cell: as its user, in namespaces of its own, in its cgroup. It
// extends Path, Env and SysProcAttr of cmd.
func (c *Cell) Start(cmd *exec.Cmd) error {
	attr := cmd.SysProcAttr
	if attr == nil {
		attr = new(syscall.SysProcAttr)
		cmd.SysProcAttr = attr
	}

	c.j.confine(attr, c.uid)
	c.confineGroups(attr)
	if c.group != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(c.group.dir.Fd())
	}

	namespaces := ""
	if c.j.spaces != 0 {
		namespaces = "1"
	}

	cmd.Env = append(cmd.Env,
		requireEnv+"="+join(c.j.require), namespacesEnv+"="+namespaces,
		// The runtime would otherwise keep a file of its cgroup open, to follow the
		// limit of CPU time; this process does it for all.
		"GODEBUG=containermaxprocs=0", fmt.Sprintf("GOMAXPROCS=%d", runtime.GOMAXPROCS(0)))
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}

	defer null.Close()
	if cmd.Stdin == nil {
		cmd.Stdin = null
	}
	if cmd.Stdout == nil {
		cmd.Stdout = null
	}

	program, err := openProgram(cmd)
	if err != nil {
		return err
	}

	defer unix.Close(program)
	path := cmd.Path
	if !isScript(program) { // its interpreter opens it by its name
		// The program's folder may be closed to the cell's user: only the file counts.
		cmd.Path = fmt.Sprintf("/proc/self/fd/%d", program)
	}

	err = cmd.Start()
	cmd.Path = path
	if errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: %s must be readable and executable for everyone (chmod a+rx)", err, path)
	}

	return err
}

// confineGroups puts an engine into the groups that may open its nodes.
func (c *Cell) confineGroups(attr *syscall.SysProcAttr) {
	if c.engine == nil || !c.j.root {
		return
	}
	for i, gid := range c.engine.Groups {
		inside := gid
		if c.j.spaces != 0 { // a number of its user namespace
			inside = uint32(i) + 1
			attr.GidMappings = append(attr.GidMappings, syscall.SysProcIDMap{ContainerID: int(inside), HostID: int(gid), Size: 1})
		}
		attr.Credential.Groups = append(attr.Credential.Groups, inside)
	}
}

// groupList is the field Groups of the process (proc(5)).
func (c *Cell) groupList() string {
	if c.engine == nil {
		return ""
	}
	groups := slices.Clone(c.engine.Groups)
	slices.Sort(groups)
	var list []string
	for _, g := range groups {
		list = append(list, fmt.Sprint(g))
	}
	return strings.Join(list, " ")
}

func isScript(fd int) bool {
	var start [2]byte
	n, err := unix.Pread(fd, start[:], 0)
	return err == nil && n == 2 && string(start[:]) == "#!"
}

// openProgram returns a descriptor of cmd's program, above those that the program
// is given: in the child, before the exec, they move to 0, 1, 2, …, by way of the
// numbers just above the highest of them (syscall.forkAndExecInChild).
func openProgram(cmd *exec.Cmd) (int, error) {
	fd, err := unix.Open(cmd.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", cmd.Path, err)
	}

	defer unix.Close(fd)
	highest := len(cmd.ExtraFiles)
	for _, f := range append([]any{cmd.Stdin, cmd.Stdout, cmd.Stderr}, anys(cmd.ExtraFiles)...) {
		if f, ok := f.(*os.File); ok && f != nil {
			highest = max(highest, int(f.Fd()))
		}
	}

	const room = 64
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, highest+room)
	if err != nil {
		return -1, fmt.Errorf("hold %s: %w", cmd.Path, err)
	}

	return high, nil
}

func anys(files []*os.File) (all []any) {
	for _, f := range files {
		all = append(all, f)
	}
	return all
}

// Alone reports whether nothing that the process started can outlive it: it is the
// first of a pid namespace, and is reaped after all others of it are dead
// (pid_namespaces(7)).
func (c *Cell) Alone() bool { return c.j.spaces&syscall.CLONE_NEWPID != 0 }

// slowSpaces are the namespaces that take the kernel long to take down.
var slowSpaces = []struct {
	flag uintptr
	file string // below /proc/PID/ns
}{{syscall.CLONE_NEWNS, "mnt"}, {syscall.CLONE_NEWNET, "net"}, {syscall.CLONE_NEWIPC, "ipc"}}

// Spaces holds the namespaces of a child that was started in the cell, until its Close. While
// they are held the end of the process does not take them down. For its mounts that would
// wait until all CPUs have passed a grace period of RCU (Linux 6.12, exit_task_namespaces,
// put_mnt_ns, namespace_unlock): tens of milliseconds on a busy host. The kernel's own
// threads would take the others down at once, on the CPU that the next driver would have.
func (c *Cell) Spaces(pid int) Spaces {
	var held Spaces
	for _, space := range slowSpaces {
		if c.j.spaces&space.flag == 0 {
			continue
		}
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, space.file))
		if err != nil { // it is only slower
			continue
		}
		held = append(held, f)
	}
	return held
}

// Spaces are namespaces that are held.
type Spaces []*os.File

// Close lets go of them.
func (s Spaces) Close() {
	for _, f := range s {
		f.Close()
	}
}

// Exhausted reports whether the kernel killed a process of the cell because it was
// out of memory.
func (c *Cell) Exhausted() bool {
	if c.group == nil {
		return false
	}
	events, err := words(c.group.path, "memory.events") // "low 0 high 0 … oom_kill 1 …"
	if err != nil {
		return false
	}
	i := slices.Index(events, "oom_kill")
	return i >= 0 && i+1 < len(events) && events[i+1] != "0"
}

// Close kills the processes in the cell and frees its user and cgroup. An error means that
// the kernel keeps some of them; then its user is not used again.
func (c *Cell) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}

	if c.group != nil {
		if err := c.group.Close(); err != nil {
			return err
		}
	}

	if c.guard != nil {
		if err := c.guard.Close(); err != nil {
			return fmt.Errorf("take the guard of devices off: %w", err)
		}
	}

	c.closed = true
	if c.j.root {
		c.j.uids.give(c.uid)
	}

	return nil
}

// Violated reports whether a process was killed for a system call that its profile
// does not have.
func Violated(status syscall.WaitStatus) bool {
	return status.Signaled() && status.Signal() == unix.SIGSYS
}
