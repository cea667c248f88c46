package crashtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/audit"
	"capgpu/gate/gatetest"
	"capgpu/internal/crashpoint"
	"capgpu/internal/proctest"
)

// stack is a run directory and the managers that have it, one after the other.
type stack struct {
	t      *testing.T
	dir    string
	args   []string       // more of device-manager
	policy map[string]any // that was written last

	deadline time.Duration // of the clients' work; 0: the policy's
	scarce   bool          // clients may be refused for want of something

	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
	log   *output
	pids  []int // of all managers that there were
}

// output is a process's output.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// options change how a stack is.
type options struct {
	faults string         // script of the device
	device map[string]any // more of the policy's device
	audit  string         // path of the log
	keep   int            // full segments of it; 0: many
	alone  bool           // no driver waits for its turn
}

// newStack makes a run directory with a policy: one tenant, quick respawns, and an
// audit log that turns over every few rounds of work.
func newStack(t *testing.T, o options) *stack {
	t.Helper()
	dir, err := os.MkdirTemp("", "cgc")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	device := map[string]any{
		"memory":  "256MiB",
		"respawn": map[string]any{"budget": 20, "window": "1m", "firstDelay": "1ms", "maxDelay": "20ms", "standby": !o.alone},
	}
	for k, v := range o.device {
		device[k] = v
	}
	if o.faults != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "faults.json"), []byte(o.faults), 0o600))
		device["faults"] = filepath.Join(dir, "faults.json")
	}
	s := &stack{t: t, dir: dir, log: &output{}, policy: map[string]any{
		"device": device,
		"audit":  map[string]any{"maxBytes": "16KiB", "keep": cmp.Or(o.keep, 1000), "owners": map[string]any{"maxBytes": "16KiB", "keep": cmp.Or(o.keep, 1000)}},
	}}
	s.writePolicy("default")
	require.NoError(t, os.Chmod(dir, 0o755)) // for the users of the children
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	for _, name := range []string{"device-manager", "gpu-mock", "gpu-gate"} {
		text, err := os.ReadFile(program(t, name)) // no link: each one more is a change of the file
		require.NoError(t, err)
		require.NoError(t, proctest.WriteProgram(s.program(name), text))
	}
	if o.audit != "" {
		s.args = []string{"--audit", o.audit}
	}
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("device-manager:\n%s", tail(s.log.String(), 6000))
		}
	})
	return s
}

// writePolicy writes the policy with these tenants.
func (s *stack) writePolicy(names ...string) {
	s.t.Helper()
	var tenants []any
	for _, name := range names {
		tenants = append(tenants, map[string]any{
			"name": name, "allowedUids": "any", "facet": "full", "maxConnections": 64, "gateRate": 1000,
			"limits": map[string]any{"deviceMemory": "64MiB", "sessions": 64},
		})
	}
	s.policy["tenants"] = tenants
	text, err := json.Marshal(s.policy)
	require.NoError(s.t, err)
	path := filepath.Join(s.dir, "policy.json")
	require.NoError(s.t, os.WriteFile(path+".new", text, 0o600))
	require.NoError(s.t, os.Rename(path+".new", path))
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

// program is the stack's own name of a program: by it its processes are known.
func (s *stack) program(name string) string { return filepath.Join(s.dir, "bin", name) }

func (s *stack) run() string    { return filepath.Join(s.dir, "run") }
func (s *stack) socket() string { return filepath.Join(s.run(), "default.sock") }
func (s *stack) capnp() string  { return filepath.Join(s.run(), "default.capnp.sock") }

func (s *stack) auditPath() string {
	if s.args != nil {
		return s.args[1]
	}
	return filepath.Join(s.run(), "audit.log")
}

// start starts a manager that dies at a point, or, with the zero Point, none.
func (s *stack) start(p crashpoint.Point, wrap ...string) {
	s.t.Helper()
	args := append([]string{s.program("device-manager"), "--dev", "--log-format", "text",
		"--run-dir", s.run(), "--policy", filepath.Join(s.dir, "policy.json")}, s.args...)
	args = append(wrap, args...)
	s.cmd = exec.Command(args[0], args[1:]...)
	s.cmd.Env = os.Environ()
	if p.Label != "" {
		s.cmd.Env = append(s.cmd.Env, crashpoint.Environment+"="+p.String())
	}
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	require.NoError(s.t, s.cmd.Start())
	s.pids = append(s.pids, s.cmd.Process.Pid)
	s.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		defer close(ended)
		_ = cmd.Wait()
	}(s.cmd, s.ended)
}

// kill ends the manager as a crash does.
func (s *stack) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// running says whether the manager has not ended.
func (s *stack) running() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// stop ends the manager in order. That it succeeds says that its ledger is at zero.
func (s *stack) stop() {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(unix.SIGTERM))
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.t.Fatalf("device-manager does not stop")
	}
	require.Zero(s.t, s.cmd.ProcessState.ExitCode(), "an orderly stop")
	require.Empty(s.t, s.processes(), "processes outlive their manager")
	require.Empty(s.t, s.sockets(), "sockets outlive their manager")
	require.Empty(s.t, s.cgroups(), "cgroups outlive their manager")
}

// driver returns the process that drives the device: the last one that the manager reported
// ready. While that is being replaced it is the oldest child, which may be the standby. 0 if
// there is none.
func (s *stack) driver() int {
	pids := processes(s.program("gpu-mock"))
	if said := readyPid.FindAllStringSubmatch(s.log.String(), -1); len(said) > 0 {
		if pid, err := strconv.Atoi(said[len(said)-1][2]); err == nil && slices.Contains(pids, pid) {
			return pid
		}
	}
	if len(pids) == 0 {
		return 0
	}
	return pids[0]
}

// readyPid finds the epochs of a manager's drivers, and their processes, in its output.
var readyPid = regexp.MustCompile(`(?m)^capgpu: device mock0 ready \(epoch (\d+), driver pid (\d+)\)$`)

// driverOf is the process that drives the device in an epoch of the only manager so far.
// Which process is older says nothing: a standby and the next driver may begin together.
func (s *stack) driverOf(epoch uint64) (pid int) {
	s.t.Helper()
	eventually(s.t, func() bool {
		for _, said := range readyPid.FindAllStringSubmatch(s.log.String(), -1) {
			if said[1] == strconv.FormatUint(epoch, 10) {
				pid, _ = strconv.Atoi(said[2])
			}
		}
		return pid != 0
	}, "no driver was ever ready in epoch %d", epoch)
	return pid
}

// killDriver kills a process that drives the device, if there is one.
func (s *stack) killDriver() {
	if pid := s.driver(); pid != 0 { // 0 would be all of us
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// processes are all children of all managers of the stack.
func (s *stack) processes() []int {
	return append(processes(s.program("gpu-mock")), processes(s.program("gpu-gate"))...)
}

// gates are the gates that have a client, oldest first.
func (s *stack) gates() []int {
	return slices.DeleteFunc(processes(s.program("gpu-gate")), func(pid int) bool { return !gatetest.HasClient(pid) })
}

// processes are those of a program, oldest first, zombies not among them.
func processes(path string) (pids []int) {
	exes, _ := filepath.Glob("/proc/[0-9]*/exe") // a zombie's leads nowhere
	begun := map[int]uint64{}
	for _, exe := range exes {
		if target, err := os.Readlink(exe); err != nil || target != path {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(exe)))
		if err != nil {
			continue
		}
		if at, ok := startTime(pid); ok {
			begun[pid] = at
			pids = append(pids, pid)
		}
	}
	// Not by number: the kernel starts over after the highest.
	slices.SortFunc(pids, func(a, b int) int { return cmp.Or(cmp.Compare(begun[a], begun[b]), a-b) })
	return pids
}

// startTime is when a process began, in clock ticks since boot (proc(5), stat, field 22).
func startTime(pid int) (ticks uint64, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false // it has just ended
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return 0, false
	}
	ticks, err = strconv.ParseUint(fields[19], 10, 64)
	return ticks, err == nil
}

// sockets are the names in the run directory that are there while a manager runs.
func (s *stack) sockets() (names []string) {
	entries, err := os.ReadDir(s.run())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(s.t, err)
	for _, e := range entries {
		if e.Type() == fs.ModeSocket || e.IsDir() && e.Name() != filepath.Base(s.auditPath())+".d" {
			names = append(names, e.Name())
		}
	}
	return names
}

// cgroups are those of the stack's managers.
func (s *stack) cgroups() (left []string) {
	for _, pid := range s.pids {
		for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
			trees, _ := filepath.Glob(fmt.Sprintf("%s/capgpu.%d.*", mount, pid))
			left = append(left, trees...)
		}
	}
	return left
}

// held counts the manager's kernel resources: its descriptors of each kind, and its children
// of each.
func (s *stack) held() map[string]int {
	held := map[string]int{}
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.cmd.Process.Pid))
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil {
			continue
		}
		kind, _, _ := strings.Cut(target, ":[")
		kind, _, _ = strings.Cut(kind, " (deleted)")
		if strings.HasPrefix(kind, "/") && !strings.HasPrefix(kind, "/memfd:") {
			kind = "file"
		}
		held[kind]++
	}
	held["drivers"], held["gates"] = len(processes(s.program("gpu-mock"))), len(s.gates())
	return held
}

// records checks all audit logs and returns their records.
func (s *stack) records() (lines []string) {
	s.t.Helper()
	paths, err := audit.Paths(s.auditPath())
	require.NoError(s.t, err)
	for _, path := range paths {
		report, err := audit.Verify(path)
		require.NoError(s.t, err, "the audit log %s", path)
		require.False(s.t, report.Unnoted, "segments are gone that no record tells of")
	}
	missing, err := audit.Missing(s.auditPath())
	require.NoError(s.t, err)
	require.Empty(s.t, missing)
	records, err := audit.ReadAll(s.auditPath())
	require.NoError(s.t, err)
	for _, r := range records {
		lines = append(lines, strings.Join([]string{r.Kind, r.Tenant, r.Detail}, " "))
	}
	return lines
}
