package sandbox

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Enforced is the confinement of a process.
type Enforced struct {
	profile *Profile
	limits  Limits

	User       uint32
	Namespaces []string
	Cgroup     string
	Mechanisms []Mechanism // in force
	missing    []Missing
	landlock   int
	devices    string
	filesystem string
}

// String is one line for a log.
func (e Enforced) String() string {
	var parts []string
	for _, m := range e.Mechanisms {
		switch m {
		case User:
			parts = append(parts, fmt.Sprintf("user=%d", e.User))
		case Namespaces:
			parts = append(parts, "namespaces="+strings.Join(e.Namespaces, ","))
		case Memory:
			parts = append(parts, fmt.Sprintf("memory=%d", e.limits.MemoryBytes))
		case Pids:
			parts = append(parts, fmt.Sprintf("pids=%d", e.limits.Pids))
		case Devices:
			parts = append(parts, "devices="+e.devices)
		case Filesystem:
			parts = append(parts, "filesystem="+e.filesystem)
		case Capabilities:
			parts = append(parts, "capabilities=none")
		case Landlock:
			parts = append(parts, fmt.Sprintf("landlock=%d", e.landlock))
		case Seccomp:
			parts = append(parts, fmt.Sprintf("seccomp=%d", e.profile.Calls()))
		}
	}

	for _, m := range e.missing {
		parts = append(parts, "no-"+string(m.Mechanism))
	}

	return strings.Join(parts, " ")
}

// Check reads from the kernel how the process, a child in this cell that has passed Enter, is
// confined. It fails if a required mechanism is not in force. Only Landlock cannot be read:
// it counts if the kernel has it and the process has a filter, because Enter fails without
// Landlock then, and installs the filter after it.
func (c *Cell) Check(pid int) (Enforced, error) {
	c.mu.Lock()
	limits := c.limits
	c.mu.Unlock()
	e := Enforced{profile: c.profile, limits: limits, landlock: c.j.abi, devices: "none", filesystem: "empty"}
	if c.engine != nil {
		e.devices, e.filesystem = "granted", "prepared"
	}
	s, err := readStatus(pid)
	if err != nil {
		return e, fmt.Errorf("look at process %d: %w", pid, err)
	}

	e.User = s.uid
	look := func(m Mechanism, err error) {
		if err != nil {
			e.missing = append(e.missing, Missing{m, err})
		} else {
			e.Mechanisms = append(e.Mechanisms, m)
		}
	}
	look(User, c.checkUser(s))
	e.Namespaces, err = c.checkNamespaces(pid)
	look(Namespaces, err)
	e.Cgroup, err = c.checkCgroup(pid)
	for _, m := range []Mechanism{Memory, Pids, Devices} {
		why := err
		if why == nil {
			why = c.j.why(m)
		}
		if why == nil && m == Devices && c.engine != nil && c.guard == nil {
			why = errors.New("its cgroup has no guard of devices")
		}
		if m == Memory && limits.MemoryBytes == 0 || m == Pids && limits.Pids == 0 {
			why = errors.New("no limit is set")
		}
		look(m, why)
	}

	if c.engine != nil {
		look(Filesystem, checkRoot(pid, c.engine.Root.tops()...))
	} else {
		look(Filesystem, checkRoot(pid))
	}
	look(Capabilities, s.checkCapabilities())
	seccomp := s.checkSeccomp(c.j.filters, max(c.profile.own, 1))

	// The claim of a process that came as far as its filter, the step after.
	landlock := c.j.why(Landlock)
	if landlock == nil {
		landlock = seccomp
	}

	look(Landlock, landlock)
	look(Seccomp, seccomp)
	return e, refusal(c.j.require, e.missing)
}

// why says what keeps a mechanism from being had on this host, or nil.
func (j *Jailer) why(m Mechanism) error {
	for _, x := range j.missing {
		if x.Mechanism == m {
			return x.Reason
		}
	}
	return nil
}

func (c *Cell) checkUser(s status) error {
	switch {
	case !c.j.root:
		return c.j.why(User)
	case s.uid != c.uid || !s.oneUser:
		return fmt.Errorf("it is user %d, not only %d", s.uid, c.uid)
	case s.groups != c.groupList():
		return fmt.Errorf("it is in the groups %q, not %q", s.groups, c.groupList())
	}
	return nil
}

func (c *Cell) checkNamespaces(pid int) (own []string, err error) {
	if c.j.spaces == 0 {
		return nil, c.j.why(Namespaces)
	}

	for _, k := range namespaceKinds {
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, k.name))
		if err != nil {
			return own, err
		}
		ours, err := os.Readlink("/proc/self/ns/" + k.name)
		if err != nil {
			return own, err
		}
		if its == ours {
			return own, fmt.Errorf("it shares the %s namespace of device-manager", k.name)
		}
		own = append(own, k.name)
	}

	return own, nil
}

func (c *Cell) checkCgroup(pid int) (string, error) {
	if c.group == nil {
		return "", c.j.why(Memory)
	}
	path, err := cgroupOf(strconv.Itoa(pid))
	if err != nil {
		return "", err
	}
	if filepath.Base(path) != filepath.Base(c.group.path) {
		return path, fmt.Errorf("it is in the cgroup %s, not in %s", path, c.group.path)
	}
	return path, nil
}

// checkRoot looks at the root directory of a process, which has these entries at most.
func checkRoot(pid int, given ...string) error {
	root := fmt.Sprintf("/proc/%d/root/", pid)
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !slices.Contains(given, e.Name()) {
			return fmt.Errorf("its root directory has %q, which it was not given", e.Name())
		}
	}

	return readOnly(root)
}

func readOnly(root string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(root, &fs); err != nil {
		return err
	}
	if fs.Flags&unix.ST_RDONLY == 0 {
		return errors.New("its root directory can be written to")
	}

	return nil
}

// status is the content of /proc/PID/status, of the worst of its threads.
type status struct {
	uid        uint32
	oneUser    bool // real, effective, saved and file system user are the same
	groups     string
	noNewPrivs bool
	seccomp    int    // 2: a filter
	filters    int    // how many; unknown: -1
	caps       uint64 // effective, permitted, inheritable and ambient together
}

// readStatus reads every thread's, and puts the weakest together.
func readStatus(pid int) (status, error) {
	proc, end := newProc()
	defer end()
	files, err := filepath.Glob(fmt.Sprintf("%s/%d/task/*/status", proc, pid))
	if err != nil {
		return status{}, err
	}

	all := status{oneUser: true, noNewPrivs: true, seccomp: unix.SECCOMP_MODE_FILTER, filters: math.MaxInt}
	seen := false
	for _, file := range files {
		fields, err := statusFields(file)
		if errors.Is(err, unix.ESRCH) || errors.Is(err, os.ErrNotExist) {
			continue // the thread has ended
		}
		if err != nil {
			return status{}, err
		}
		if err := all.add(fields); err != nil {
			return status{}, fmt.Errorf("%s: %w", file, err)
		}
		seen = true
	}

	if !seen {
		return status{}, errors.New("it has ended")
	}

	return all, nil
}

func (s *status) add(fields map[string]string) error {
	uids := strings.Fields(fields["Uid"])
	if len(uids) != 4 {
		return fmt.Errorf("the field Uid is %q", fields["Uid"])
	}

	uid, err := strconv.ParseUint(uids[0], 10, 32)
	if err != nil {
		return err
	}

	s.oneUser = s.oneUser && uids[1] == uids[0] && uids[2] == uids[0] && uids[3] == uids[0]
	s.uid, s.groups = uint32(uid), fields["Groups"]
	s.noNewPrivs = s.noNewPrivs && fields["NoNewPrivs"] == "1"
	mode, err := strconv.Atoi(fields["Seccomp"])
	if err != nil {
		return err
	}

	s.seccomp = min(s.seccomp, mode)
	filters, err := filterCount(fields, mode)
	if err != nil {
		return err
	}

	s.filters = min(s.filters, filters)
	for _, set := range []string{"CapEff", "CapPrm", "CapInh", "CapAmb"} {
		bits, err := strconv.ParseUint(fields[set], 16, 64)
		if err != nil {
			return err
		}
		s.caps |= bits
	}

	return nil
}

func (s status) checkCapabilities() error {
	if s.caps != 0 {
		return fmt.Errorf("it has the capabilities %#x", s.caps)
	}
	if !s.noNewPrivs {
		return errors.New("it could gain privileges by an exec")
	}
	return nil
}

// unknownFilters is their number if the kernel does not report it.
const unknownFilters = -1

// filterCount is how many filters a thread has. The field is as old as Linux 5.9.
func filterCount(fields map[string]string, mode int) (int, error) {
	switch text, ok := fields["Seccomp_filters"]; {
	case ok:
		return strconv.Atoi(text)
	case mode == 0:
		return 0, nil
	}
	return unknownFilters, nil
}

// ownFilters returns how many filters this process has. Its children inherit them, so they
// say nothing about a child.
func ownFilters() (int, error) {
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		return 0, err
	}

	most := 0
	for _, file := range files {
		fields, err := statusFields(file)
		if errors.Is(err, unix.ESRCH) || errors.Is(err, os.ErrNotExist) {
			continue // the thread has ended
		}
		if err != nil {
			return 0, err
		}
		mode, err := strconv.Atoi(fields["Seccomp"])
		if err != nil {
			return 0, err
		}
		n, err := filterCount(fields, mode)
		if err != nil {
			return 0, err
		}
		if n == unknownFilters {
			return n, nil
		}
		most = max(most, n)
	}

	return most, nil
}

// checkSeccomp looks for so many filters besides those that the parent has.
func (s status) checkSeccomp(inherited, own int) error {
	switch {
	case s.seccomp != unix.SECCOMP_MODE_FILTER:
		return errors.New("it has no system call filter")
	case inherited == 0 && own == 1: // then it is its own
		return nil
	case inherited == unknownFilters || s.filters == unknownFilters:
		return errors.New("device-manager has a system call filter, which its children inherit, and this kernel does not tell theirs from it (it needs Linux 5.9)")
	case s.filters <= inherited:
		return errors.New("it has no system call filter but what it inherited")
	case s.filters < inherited+own:
		return fmt.Errorf("it has set %d of its %d system call filters", s.filters-inherited, own)
	}
	return nil
}

// effective is the set of effective capabilities of a process.
func effective(pid string) (uint64, error) {
	fields, err := statusFields("/proc/" + pid + "/status")
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(fields["CapEff"], 16, 64)
}

func statusFields(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.SplitSeq(string(text), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields, nil
}
