package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupTree is the part of the cgroup v2 hierarchy for this process's children, below its
// own cgroup:
//
//	OWN/capgpu.PID.START/manager         this process, if OWN needed to be emptied
//	OWN/capgpu.PID.START/cells-N/NAME    a child each; N is the Jailer's
//	OWN/capgpu.PID.START/engines-N/NAME  an engine each: its guard of devices is its own
//
// PID and START (its start time) tell a successor which cgroups were left behind.
type cgroupTree struct {
	own, top, cells string
	engines         string
	moved           bool             // this process is in top/manager now
	lacking         map[string]error // controllers that cells do not have
}

// trees numbers those of this process: tests have several managers in one.
var trees atomic.Uint64

// controllers that cells want. Nothing is missing without hugetlb, which systemd
// does not delegate.
var wanted = []string{"memory", "pids", "hugetlb"}

const treePrefix = "capgpu."

func newCgroupTree() (_ *cgroupTree, err error) {
	own, err := ownCgroup()
	if err != nil {
		return nil, err
	}

	id, err := ProcessID(os.Getpid())
	if err != nil {
		return nil, err
	}

	removeLeftovers(own)
	t := &cgroupTree{own: own, top: filepath.Join(own, treePrefix+id), lacking: map[string]error{}}
	n := trees.Add(1)
	t.cells, t.engines = filepath.Join(t.top, fmt.Sprintf("cells-%d", n)), filepath.Join(t.top, fmt.Sprintf("engines-%d", n))
	if err := os.Mkdir(t.top, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make a cgroup: %w", err)
	}
	for _, dir := range []string{t.cells, t.engines} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("make a cgroup: %w", err), t.Close())
		}
	}

	for _, c := range wanted {
		if err := t.enable(c); err != nil {
			t.lacking[c] = err
		}
	}

	return t, nil
}

// lacks says why cells have no such controller, or nil.
func (t *cgroupTree) lacks(controller string) error { return t.lacking[controller] }

// enable hands a controller down to the cells.
func (t *cgroupTree) enable(controller string) error {
	have, err := words(t.own, "cgroup.controllers")
	if err != nil {
		return err
	}
	if !slices.Contains(have, controller) {
		return fmt.Errorf("the cgroup %s has no %s controller (cgroup.controllers: %q); mount cgroup v2 with it, or have it delegated", t.own, controller, strings.Join(have, " "))
	}

	for _, dir := range []string{t.own, t.top, t.cells, t.engines} {
		err := write(dir, "cgroup.subtree_control", "+"+controller)
		// A cgroup with processes hands nothing down, unless it is the root.
		if errors.Is(err, unix.EBUSY) && dir == t.own {
			if err = t.moveAside(); err == nil {
				err = write(dir, "cgroup.subtree_control", "+"+controller)
			}
		}
		if err != nil {
			return fmt.Errorf("enable %s in the cgroup %s: %w", controller, dir, err)
		}
	}

	return nil
}

// moveAside moves this process to a leaf of its own, if it is alone.
func (t *cgroupTree) moveAside() error {
	procs, err := words(t.own, "cgroup.procs")
	if err != nil {
		return err
	}

	self := strconv.Itoa(os.Getpid())
	for _, pid := range procs {
		if pid != self {
			return fmt.Errorf("other processes (%s) are in it too; start device-manager in a cgroup of its own: systemd-run --scope -p Delegate=yes", pid)
		}
	}

	leaf := filepath.Join(t.top, "manager")
	if err := os.Mkdir(leaf, 0o755); err != nil {
		return err
	}
	if err := write(leaf, "cgroup.procs", self); err != nil {
		return errors.Join(err, os.Remove(leaf))
	}

	t.moved = true
	return nil
}

// Close removes the Jailer's part, and the tree if nothing else is in it.
func (t *cgroupTree) Close() error {
	for _, dir := range []string{t.cells, t.engines} {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the cgroup of the cells: %w", err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(t.top, "cells-*")); err != nil || len(left) > 0 {
		return err // the last one removes the rest
	}

	if t.moved {
		// Back to this process's former cgroup, for its successor.
		for _, c := range wanted {
			_ = write(t.top, "cgroup.subtree_control", "-"+c)
			_ = write(t.own, "cgroup.subtree_control", "-"+c)
		}
		if err := write(t.own, "cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
			return nil // the unit's end removes it
		}
		_ = os.Remove(filepath.Join(t.top, "manager"))
	}

	if err := os.Remove(t.top); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("remove a cgroup: %w", err)
	}

	return nil
}

// cgroup is that of one cell.
type cgroup struct {
	path   string
	dir    *os.File // for clone3(CLONE_INTO_CGROUP)
	killer *os.File // cgroup.kill, open from the start: at the end there may be no descriptors; nil before Linux 5.14
}

func (t *cgroupTree) cell(branch, name string, l Limits) (_ *cgroup, err error) {
	g := &cgroup{path: filepath.Join(branch, name)}
	if err := os.Mkdir(g.path, 0o755); err != nil {
		return nil, fmt.Errorf("make a cgroup: %w", err)
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(g.path))
		}
	}()

	if err := t.limit(g.path, l); err != nil {
		return nil, err
	}
	if g.killer, err = os.OpenFile(filepath.Join(g.path, "cgroup.kill"), os.O_WRONLY, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	if g.dir, err = os.Open(g.path); err != nil {
		g.killer.Close()
		return nil, err
	}

	return g, nil
}

// limit sets the limits of a cgroup; 0 leaves the current one.
func (t *cgroupTree) limit(path string, l Limits) error {
	set := map[string]string{}
	if t.lacking["memory"] == nil && l.MemoryBytes != 0 {
		set["memory.max"] = strconv.FormatUint(l.MemoryBytes, 10)
		set["memory.oom.group"] = "1"
	}

	if t.lacking["pids"] == nil && l.Pids != 0 {
		set["pids.max"] = strconv.FormatUint(l.Pids, 10)
	}

	if t.lacking["hugetlb"] == nil {
		files, err := os.ReadDir(path) // not Glob, which finds nothing where it cannot look
		if err != nil {
			return err
		}
		for _, f := range files { // hugetlb.2MB.max, hugetlb.2MB.rsvd.max
			if limit, _ := filepath.Match("hugetlb.*.max", f.Name()); limit && !strings.HasSuffix(f.Name(), ".rsvd.max") {
				set[f.Name()] = strconv.FormatUint(l.HugeBytes, 10)
			}
		}
	}

	for file, value := range set {
		if err := write(path, file, value); err != nil {
			return err
		}
	}

	if _, limited := set["memory.max"]; limited {
		// Absent where the host has no swap accounting; there it has no swap either.
		if err := write(path, "memory.swap.max", "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}

	return nil
}

// How long a killed process may take to leave its cgroup.
const (
	leaveTimeout = 2 * time.Second
	leavePoll    = time.Millisecond
)

// Close kills the processes in the cgroup and removes it. It may be called again.
func (g *cgroup) Close() error {
	if g.killer != nil {
		if _, err := g.killer.WriteString("1"); err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("kill what is in the cgroup: %w", err)
		}
	}
	if err := removeCgroup(g.path, leaveTimeout); err != nil {
		return err
	}
	_ = g.killer.Close() // nil does no harm
	return g.dir.Close()
}

// removeCgroup removes a cgroup as soon as the killed processes have left it.
func removeCgroup(path string, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		err := os.Remove(path)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("remove a cgroup: %w (%s/cgroup.procs tells which processes do not end)", err, path)
		}
		time.Sleep(leavePoll)
	}
}

// removeLeftovers removes the trees of managers that are no more, with all that
// runs in them.
func removeLeftovers(own string) {
	trees, _ := filepath.Glob(filepath.Join(own, treePrefix+"*"))
	for _, top := range trees {
		id := strings.TrimPrefix(filepath.Base(top), treePrefix)
		text, _, _ := strings.Cut(id, ".")
		pid, err := strconv.Atoi(text)
		if err != nil {
			continue // a name that is in use
		}
		if now, err := ProcessID(pid); err == nil && now == id {
			continue // it lives
		}
		_ = write(top, "cgroup.kill", "1")
		var dirs []string
		_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) { // the deepest first
			_ = removeCgroup(dir, leaveTimeout)
		}
	}
}

// ownCgroup is the directory of this process's cgroup.
func ownCgroup() (string, error) {
	root, mount, err := cgroup2Mount()
	if err != nil {
		return "", err
	}
	path, err := cgroupOf("self")
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(root, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return "", fmt.Errorf("the cgroup %s of this process is outside of what is mounted on %s", path, mount)
	}
	return filepath.Join(mount, rel), nil
}

// cgroupOf is the cgroup v2 of a process, as a path in the hierarchy.
func cgroupOf(pid string) (string, error) {
	text, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return path, nil
		}
	}
	return "", errors.New("this host has no cgroup v2")
}

// cgroup2Mount finds where cgroup v2 is mounted, and which part of it.
func cgroup2Mount() (root, mount string, err error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", "", err
	}

	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// 41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if ok && len(fields) >= 5 && strings.HasPrefix(after, "cgroup2 ") {
			return fields[3], fields[4], nil
		}
	}

	return "", "", errors.Join(errors.New("cgroup v2 is not mounted"), lines.Err())
}

// ProcessID names a process for ever: its number and its start time, in ticks
// since boot (proc(5), /proc/PID/stat field 22).
func ProcessID(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	if len(fields) < 20 {
		return "", fmt.Errorf("read /proc/%d/stat: %q", pid, text)
	}
	return fmt.Sprintf("%d.%s", pid, fields[19]), nil
}

func words(dir, file string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(text)), nil
}

func write(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0) // never O_CREATE
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
