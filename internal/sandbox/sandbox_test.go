package sandbox

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/internal/sandbox/devguard"
)

// patience bounds waits for events that come at once on an idle machine.
const patience = 20 * time.Second

// Every call that is not in the table ends the process.
func TestForbiddenCallsKill(t *testing.T) {
	j := newJailer(t)
	needs(t, j, Seccomp)
	t.Setenv("TARGET_PID", strconv.Itoa(os.Getpid()))
	everybody := []string{
		"open a file", "open a device", "make a file", "look at a process", "make a node", "make a folder", "list the root",
		"make a socket", "make a packet", "connect", "bind", "allow descriptors",
		"kill", "kill a thread", "trace", "read memory", "ioctl", "exec", "exec a descriptor", "fork", "vfork", "clone3",
		"unshare", "join", "protect", "remap", "map code", "mount", "chroot", "bpf", "io_uring", "userfault", "perf",
		"load a module", "be traced", "set a user", "keep a key", "punch nothing", "lease", "tomorrow's call", "pair of inet",
		"datagram pair", "pidfd of a peer", "make huge shared memory", "map huge pages", "map locked pages", "punch by advice", "merge pages",
	}
	makers := []string{"make shared memory", "make a pipe", "socketpair"}
	for _, action := range append(everybody, makers...) {
		for _, p := range []*Profile{Driver, Gate} {
			t.Run(p.Name()+"/"+action, func(t *testing.T) {
				c := newCell(t, j, p, Limits{})
				o := run(t, c, p.Name(), action)
				if p == Driver && slices.Contains(makers, action) {
					require.Equal(t, "<nil>", o.did(t))
					return
				}
				require.True(t, o.killed, "%v: %s%s", o.state, o.said, o.log)
			})
		}
	}
}

// A Go program finds all that it needs.
func TestConfinedProgramsRun(t *testing.T) {
	j := newJailer(t)
	for _, p := range []*Profile{Driver, Gate} {
		for _, action := range []string{"nothing", "work", "map data"} {
			t.Run(p.Name()+"/"+action, func(t *testing.T) {
				o := run(t, newCell(t, j, p, Limits{}), p.Name(), action)
				require.Equal(t, "<nil>", o.did(t))
				require.Contains(t, o.log, "msg=sandboxed profile="+p.Name())
			})
		}
	}
}

// Without the filter the other mechanisms hold by themselves.
func TestEmptyRoot(t *testing.T) {
	j := newJailer(t)
	needs(t, j, Namespaces)
	for action, want := range map[string]string{
		"list the root":       "0 entries",
		"open a file":         "no such file or directory",
		"open a device":       "no such file or directory",
		"look at a process":   "no such file or directory",
		"make a file in root": "read-only file system",
		"make a folder":       "read-only file system",
	} {
		t.Run(action, func(t *testing.T) {
			o := run(t, newCell(t, j, Driver, Limits{}), "root", action)
			require.Equal(t, want, o.did(t))
		})
	}
}

// Descriptors that a careless parent left open are no way around the empty root.
func TestInheritedDescriptorsAreClosed(t *testing.T) {
	j := newJailer(t)
	needs(t, j, Namespaces)
	folder, err := os.Open("/etc")
	require.NoError(t, err)
	defer folder.Close()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(pair[1])
	socket := os.NewFile(uintptr(pair[0]), "socket")
	defer socket.Close()
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	require.NoError(t, err)
	pidfd := os.NewFile(uintptr(self), "pidfd")
	defer pidfd.Close()
	t.Setenv("TARGET_FD", "3")
	for _, f := range []*os.File{folder, w, socket, pidfd} {
		for steps, want := range map[string]string{"none": "<nil>", "driver": "bad file descriptor", "gate": "bad file descriptor"} {
			cmd := intruder(t, steps, "use a descriptor")
			cmd.ExtraFiles = []*os.File{f}
			require.Equal(t, want, finish(t, newCell(t, j, Driver, Limits{}), cmd).did(t), f.Name())
		}
	}
}

// Descriptors that the parent inherited do not reach a child.
func TestChildrenHoldWhatTheyAreGiven(t *testing.T) {
	fd, err := unix.Dup(0) // as left open by this process's parent
	require.NoError(t, err)
	defer unix.Close(fd)
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 200)
	require.NoError(t, err)
	defer unix.Close(high)
	j := newJailer(t)
	o := runWith(t, newCell(t, j, Driver, Limits{}), "none", "use a descriptor", "TARGET_FD="+strconv.Itoa(high))
	require.Equal(t, "bad file descriptor", o.did(t))
}

// If the host is out of memory, the kernel does not kill the parent first, for any score of
// its unit.
func TestChildrenGoFirst(t *testing.T) {
	const file = "/proc/self/oom_score_adj"
	own, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("100"), 0))
	defer func() { require.NoError(t, os.WriteFile(file, own, 0)) }()
	c := newCell(t, newJailer(t), Driver, Limits{})
	require.Equal(t, "100", run(t, c, "none", "how soon killed").did(t), "the test can tell")
	its, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", sleeper(t, c, "driver")))
	require.NoError(t, err)
	require.Equal(t, "500\n", string(its))
}

func TestNamespaces(t *testing.T) {
	j := newJailer(t)
	needs(t, j, Namespaces)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	abstract, err := net.Listen("unix", "@capgpu-sandbox-test-"+strconv.Itoa(os.Getpid()))
	require.NoError(t, err)
	defer abstract.Close()
	for _, x := range []struct{ action, env, want string }{
		{"kill", "TARGET_PID=" + strconv.Itoa(os.Getpid()), "no such process"},
		{"trace", "TARGET_PID=" + strconv.Itoa(os.Getpid()), "no such process"},
		{"dial", "TARGET_ADDR=" + l.Addr().String(), "network is unreachable"},
		{"dial abstract", "TARGET_ADDR=" + abstract.Addr().String(), "connection refused"},
	} {
		t.Run(x.action, func(t *testing.T) {
			o := runWith(t, newCell(t, j, Driver, Limits{}), "none", x.action, x.env)
			require.Contains(t, o.did(t), x.want)
		})
	}
}

// A process of another user cannot read files of ours alone.
func TestUserOfItsOwn(t *testing.T) {
	j := newJailer(t)
	needs(t, j, User)
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("x"), 0o600))
	a, b := newCell(t, j, Driver, Limits{}), newCell(t, j, Driver, Limits{})
	require.NotEqual(t, a.uid, b.uid)
	for _, x := range []struct{ action, env string }{
		{"read a secret", "TARGET_FILE=" + secret},
		{"look at its parent", "TARGET_PID=" + strconv.Itoa(os.Getpid())},
	} {
		require.Contains(t, runWith(t, a, "none", x.action, x.env).did(t), "permission denied")
	}
}

func TestCapabilities(t *testing.T) {
	j := newJailer(t)
	needs(t, j, Namespaces)
	c := newCell(t, j, Driver, Limits{})
	require.Equal(t, "operation not permitted", run(t, c, "capabilities", "mount").did(t))
	require.Equal(t, "0000000000000000 0000000000000000", run(t, c, "capabilities", "capabilities").did(t))
	require.NotContains(t, run(t, c, "none", "capabilities").did(t), "0000000000000000", "the test can tell")
}

func TestGuestLandlock(t *testing.T) {
	j := newJailer(t)
	needs(t, j, Landlock)
	l, err := net.Listen("unix", "@capgpu-landlock-test-"+strconv.Itoa(os.Getpid()))
	require.NoError(t, err)
	defer l.Close()
	c := newCell(t, j, Driver, Limits{})
	for _, action := range []string{"open a file", "make a file", "look at a process"} {
		require.Equal(t, "permission denied", run(t, c, "landlock", action).did(t), action)
	}
	if j.abi >= 4 {
		require.Contains(t, runWith(t, c, "landlock", "dial", "TARGET_ADDR=127.0.0.1:1").did(t), "permission denied")
	}
	require.Equal(t, "<nil>", run(t, c, "landlock", "work").did(t))
}

// Processes that a cell leaves behind end with the cell.
func TestCloseKillsWhatIsLeft(t *testing.T) {
	j := newJailer(t)
	if j.groups == nil {
		t.Skip("NOT TESTED: this host has no cgroup v2 for us")
	}
	c, err := j.Cell("left", Driver, Limits{})
	require.NoError(t, err)
	pid := sleeper(t, c, "none")
	path := c.group.path
	require.NoError(t, c.Close())
	require.NoDirExists(t, path)
	require.Eventually(t, func() bool { // it leaves the cgroup a moment before
		state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err == nil && strings.Contains(string(state), ") Z ")
	}, patience, time.Millisecond, "dead, and not yet waited for")
}

func TestLeftoversOfACrashAreRemoved(t *testing.T) {
	own, err := ownCgroup()
	if err != nil {
		t.Skip("NOT TESTED:", err)
	}
	dead := filepath.Join(own, treePrefix+"4194304.1") // one above the largest process id
	if err := os.MkdirAll(filepath.Join(dead, "cells-1", "driver-1"), 0o755); err != nil {
		t.Skip("NOT TESTED:", err)
	}
	newJailer(t)
	require.NoDirExists(t, dead)
}

func TestCheck(t *testing.T) {
	j := newJailer(t)
	c := newCell(t, j, Driver, Limits{MemoryBytes: 256 << 20, Pids: 64})
	e, err := c.Check(sleeper(t, c, "driver"))
	require.NoError(t, err)
	for _, m := range Mechanisms {
		require.Equal(t, !j.lacks(m), slices.Contains(e.Mechanisms, m), "%s: %s", m, e)
	}
	require.Contains(t, e.String(), "seccomp="+strconv.Itoa(Driver.Calls()))
	t.Log(e)
	_, err = c.Check(1 << 22)
	require.ErrorContains(t, err, "it has ended")
}

// A process that skipped Enter is not taken for a confined one.
func TestCheckSeesThrough(t *testing.T) {
	j := newJailer(t, Capabilities, Seccomp)
	needs(t, j, Namespaces)
	c := newCell(t, j, Driver, Limits{})
	_, err := c.Check(sleeper(t, c, "none"))
	require.ErrorContains(t, err, "it has the capabilities")
	require.ErrorContains(t, err, "it has no system call filter")
	e, err := newCell(t, newJailer(t), Driver, Limits{}).Check(os.Getpid())
	require.NoError(t, err, "nothing is required")
	require.NotContains(t, e.Mechanisms, Namespaces)
	require.NotContains(t, e.Mechanisms, Filesystem)
}

func TestRequiredAndMissing(t *testing.T) {
	j := newJailer(t)
	for _, m := range j.missing {
		_, err := New(Options{Require: []Mechanism{m.Mechanism}, GuardDevices: devguard.Attach})
		require.ErrorContains(t, err, "the policy requires a confinement that cannot be had here: "+string(m.Mechanism))
	}
	// In the child: without a mount namespace there is no empty root.
	cmd := intruder(t, "driver", "nothing")
	cmd.Env = append(cmd.Env, requireEnv+"="+string(Filesystem))
	out, err := cmd.Output()
	require.Error(t, err)
	require.Contains(t, string(out), "the policy requires a confinement that cannot be had here: filesystem: the process has no mount namespace")
}

// A filter that the parent has, as systemd gives it one, is no filter of the child's.
func TestInheritedFilterDoesNotCount(t *testing.T) {
	tid := 0
	t.Run("thread", func(t *testing.T) {
		runtime.LockOSThread() // never unlocked: the thread has the filter, and ends with this
		tid = unix.Gettid()
		require.NoError(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		require.NoError(t, filterThread([]unix.SockFilter{ret(unix.SECCOMP_RET_ALLOW)}))
		j := newJailer(t)
		for steps, entered := range map[string]bool{"none": false, "driver": true} {
			c := newCell(t, j, Driver, Limits{})
			e, err := c.Check(sleeper(t, c, steps))
			require.NoError(t, err, "nothing is required")
			for _, m := range []Mechanism{Seccomp, Landlock} {
				require.Equal(t, entered && !j.lacks(m), slices.Contains(e.Mechanisms, m), "%s: %s: %s", steps, m, e)
			}
		}
	})
	require.Eventually(t, func() bool {
		_, err := os.Stat("/proc/self/task/" + strconv.Itoa(tid))
		return os.IsNotExist(err)
	}, patience, time.Millisecond, "else this process has the filter")
}

func TestCheckSeccomp(t *testing.T) {
	const filter = unix.SECCOMP_MODE_FILTER
	for _, x := range []struct {
		mode, filters, inherited int
		want                     string
	}{
		{0, 0, 0, "no system call filter"},
		{filter, 1, 0, ""},
		{filter, unknownFilters, 0, ""},
		{filter, 8, 8, "but what it inherited"},
		{filter, 9, 8, ""},
		{filter, unknownFilters, unknownFilters, "does not tell"},
	} {
		err := status{seccomp: x.mode, filters: x.filters}.checkSeccomp(x.inherited, 1)
		if x.want == "" {
			require.NoError(t, err, "%+v", x)
		} else {
			require.ErrorContains(t, err, x.want, "%+v", x)
		}
	}
	n, err := filterCount(map[string]string{}, filter)
	require.NoError(t, err)
	require.Equal(t, unknownFilters, n)
}

func TestMechanismNames(t *testing.T) {
	list, err := split(join(Mechanisms))
	require.NoError(t, err)
	require.Equal(t, Mechanisms, list)
	_, err = split("seccomp,magic")
	require.ErrorContains(t, err, `no mechanism "magic"; the names are user,`)
	none, err := split("")
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestUsers(t *testing.T) {
	for _, r := range []UIDRange{{0, 10}, {1000, 1}, {1 << 31, 10}, {1<<31 - 5, 10}} {
		require.Error(t, r.Check(), "%v", r)
	}
	etc := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(etc, "passwd"), []byte("root:x:0:0::/:/bin/sh\n+\nalice:x:5000:5000::/home/alice:/bin/sh\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(etc, "subuid"), []byte("alice:100000:65536\n"), 0o644))
	for r, want := range map[UIDRange]string{
		{4990, 10}: "", {5001, 10}: "", {165536, 2}: "", DefaultUIDs: "",
		{4990, 11}: "passwd has 5000 for alice", {5000, 2}: "alice", {165535, 2}: "subuid has 100000 for alice", {99000, 1001}: "alice",
	} {
		if err := r.free(etc); want == "" {
			require.NoError(t, err, "%v", r)
		} else {
			require.ErrorContains(t, err, want, "%v", r)
		}
	}
	_, err := newUIDPool(UIDRange{First: 5000, Count: minUIDs - 1})
	require.ErrorContains(t, err, "too small")
	p, err := newUIDPool(UIDRange{First: 5000, Count: minUIDs})
	require.NoError(t, err)
	seen := map[uint32]bool{}
	for range minUIDs - 4 {
		uid, err := p.take(4)
		require.NoError(t, err)
		seen[uid] = true
	}
	_, err = p.take(4)
	require.ErrorContains(t, err, "12 of 16 users of sandbox.uids are in use, and 4 are kept for drivers")
	for range 4 {
		uid, err := p.take(0)
		require.NoError(t, err)
		seen[uid] = true
	}
	require.Len(t, seen, minUIDs)
	require.True(t, seen[5000] && seen[5000+minUIDs-1])
	_, err = p.take(0)
	require.ErrorContains(t, err, "16 of 16 users")
	p.give(5001)
	uid, err := p.take(0)
	require.NoError(t, err)
	require.EqualValues(t, 5001, uid)
}

func TestOwnCgroupIsFound(t *testing.T) {
	root, mount, err := cgroup2Mount()
	if err != nil {
		t.Skip("NOT TESTED:", err)
	}
	require.True(t, strings.HasPrefix(root, "/"))
	require.FileExists(t, filepath.Join(mount, "cgroup.procs"))
}
