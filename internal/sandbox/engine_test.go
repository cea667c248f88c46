package sandbox

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// granted is a root with the test program, a node, and another node that the guard refuses.
func granted(t *testing.T) Granted {
	t.Helper()
	library := filepath.Join(t.TempDir(), "library")
	require.NoError(t, os.WriteFile(library, nil, 0o666))
	require.NoError(t, os.Chmod(library, 0o666)) // whatever the umask: the mount refuses
	for dir := filepath.Dir(library); dir != os.TempDir(); dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	return Granted{
		Root:    Root{Run: []string{library}, Nodes: []string{"/dev/zero", "/dev/full"}, Proc: true},
		Devices: []Device{{1, 5}},
	}
}

// launched runs an action in a program that was launched as an engine is.
func launched(t *testing.T, j *Jailer, g Granted, steps, action string) outcome {
	t.Helper()
	c, err := j.EngineCell("test", g, Limits{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	prepared(t, g, steps, action)
	cmd := intruder(t, "launch", "nothing")
	cmd.ExtraFiles = []*os.File{engineFile(t)}
	return finish(t, c, cmd)
}

// engineFile is the program that is launched.
func engineFile(t *testing.T) *os.File {
	t.Helper()
	path, err := static()
	require.NoError(t, err)
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// prepared sets what the launcher becomes.
func prepared(t *testing.T, g Granted, steps, action string) {
	t.Helper()
	env := []string{intruderEnv + "=" + steps + " " + action}
	for _, name := range []string{"TARGET_PID", "TARGET_FILE", "TARGET_ADDR", "TARGET_ACTIONS"} {
		env = append(env, name+"="+os.Getenv(name))
	}
	t.Setenv("TARGET_LAUNCH", Launched{Program: "/engine", Env: env, Root: g.Root}.Text())
}

// A seized engine gets nothing but its device, before its second filter as after it.
func TestSeizedEngine(t *testing.T) {
	j := newJailer(t)
	needs(t, j, Namespaces, Seccomp, Landlock)
	g := granted(t)
	t.Setenv("TARGET_PID", strconv.Itoa(os.Getpid()))
	t.Setenv("TARGET_FILE", g.Root.Run[0])
	t.Setenv("TARGET_ADDR", "127.0.0.1:1")
	const no, missing = "operation not permitted", "no such file or directory"
	want := map[string]string{
		"open a device": missing, "read a secret": "<nil>", "write the library": "read-only file system",
		"make a file": "read-only file system", "make a file in root": "read-only file system", "make a folder": no, "make a node": no,
		"look at its parent": missing, "see others": "1", "open the node": "<nil>",
		"make a socket": no, "make a packet": no, "connect": no, "bind": no, "socketpair": no, "allow descriptors": no, "pidfd of a peer": no,
		"kill": no, "kill a thread": no, "trace": no, "read memory": no, "be traced": no,
		"exec": no, "exec a descriptor": no, "fork": no, "vfork": no, "clone3": "function not implemented",
		"unshare": no, "join": no, "mount": no, "chroot": no, "bpf": no, "io_uring": no, "userfault": no, "perf": no, "load a module": no,
		"set a user": no, "keep a key": no, "lease": no, "tomorrow's call": no, "punch by advice": no, "merge pages": no,
		"make huge shared memory": no, "map huge pages": no, "map locked pages": no,
		"map both": "<nil>", "map code": "<nil>", "work": "<nil>",
	}
	t.Setenv("TARGET_ACTIONS", strings.Join(slices.Collect(maps.Keys(want)), "|"))
	o := launched(t, j, g, "none", "several")
	require.Contains(t, o.log, "msg=sandboxed profile=engine filesystem=prepared")
	lines := strings.Split(o.did(t), "\n")
	require.Len(t, lines, len(want))
	for _, line := range lines {
		action, did, _ := strings.Cut(line, ": ")
		require.Contains(t, did, want[action], action)
	}

	// After the second filter one more call is the end. TestFilterIsTheTable has all of them.
	for _, action := range []string{"open a device", "read a secret", "look at its parent", "make a socket", "kill", "trace", "exec a descriptor", "fork", "unshare", "bpf", "map both", "ioctl F", "tomorrow's call"} {
		o := launched(t, j, g, "seal", action)
		require.True(t, o.killed, "%s: %v: %s%s", action, o.state, o.said, o.log)
	}
	require.True(t, launched(t, j, g, "sealF", "ioctl").killed, "of another driver")
	for steps, want := range map[string]map[string]string{
		"seal":  {"work": "<nil>", "map code": "<nil>", "map data": "<nil>", "clone3": "function not implemented"},
		"sealF": {"work": "<nil>", "ioctl F": "bad file descriptor", "open the node": "<nil>", "open a device": missing, "write the library": "read-only file system"},
	} {
		t.Setenv("TARGET_ACTIONS", strings.Join(slices.Collect(maps.Keys(want)), "|"))
		for line := range strings.SplitSeq(launched(t, j, g, steps, "several").did(t), "\n") {
			action, did, _ := strings.Cut(line, ": ")
			require.Contains(t, did, want[action], "%s: %s", steps, action)
		}
	}
}

// The guard of devices holds by itself: a node that is in the root and not granted.
func TestEngineDevices(t *testing.T) {
	j := newJailer(t)
	needs(t, j, Namespaces, Devices)
	require.Equal(t, "operation not permitted", launched(t, j, granted(t), "none", "open other node").did(t))
	g := granted(t)
	g.Devices = append(g.Devices, Device{1, 7})
	require.Equal(t, "<nil>", launched(t, j, g, "none", "open other node").did(t), "the test can tell")
}

// An engine that has not sealed itself is not served.
func TestCheckOfAnEngine(t *testing.T) {
	j := newJailer(t, Seccomp, Filesystem, Capabilities)
	needs(t, j, Namespaces, Seccomp)
	for steps, want := range map[string]string{"none": "it has set 1 of its 2 system call filters", "seal": ""} {
		g := granted(t)
		g.Groups = []uint32{65000}
		c, err := j.EngineCell("test", g, Limits{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		r, w, err := os.Pipe()
		require.NoError(t, err)
		prepared(t, g, steps, "sleep")
		cmd := intruder(t, "launch", "sleep") // which keeps descriptor 3
		cmd.Env = append(cmd.Env, "TARGET_KEEP=1")
		cmd.ExtraFiles = []*os.File{w, engineFile(t)}
		cmd.Stderr = t.Output()
		require.NoError(t, c.Start(cmd))
		w.Close()
		_, err = r.Read(make([]byte, 1))
		r.Close()
		require.NoError(t, err, "it sleeps")
		e, err := c.Check(cmd.Process.Pid)
		if want == "" {
			require.NoError(t, err)
			require.Contains(t, e.String(), "filesystem=prepared")
			require.Equal(t, !j.lacks(User), slices.Contains(e.Mechanisms, User), "%s", e)
		} else {
			require.ErrorContains(t, err, want)
		}
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
}

func TestLaunchedText(t *testing.T) {
	l := Launched{Program: "/usr/bin/engine", Args: []string{"a"}, Env: []string{"X=1"}, Root: Root{Run: []string{"/usr/lib"}, Read: []string{"/sys/x"}, Nodes: []string{"/dev/x"}, Proc: true}}
	got, err := ParseLaunched([]byte(l.Text()))
	require.NoError(t, err)
	require.Equal(t, l, got)
	require.Equal(t, []string{"dev", "proc", "sys", "usr"}, l.Root.tops())
	for _, bad := range []string{"", "{}", `{"program":"x"}`, `{"program":"/x","root":{"run":["/"]}}`, `{"program":"/x","root":{"nodes":["y"]}}`} {
		_, err := ParseLaunched([]byte(bad))
		require.Error(t, err, bad)
	}
}
