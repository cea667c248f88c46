package manager_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/internal/sandbox"
	"capgpu/manager"
)

// builtEngines is where the programs of engines are, once they are built.
var builtEngines = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(programs, "engines")
	for _, p := range [][2]string{{"engine", "./testdata/engine"}, {"engineuser", "./testdata/engineuser"}, {"launcher", "capgpu/cmd/gpu-engine-launch"}} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, p[0]), p[1])
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", p[0], err, out)
		}
	}
	return dir, nil
})

// enginePrograms returns a folder with the scripted engine, its driver and the launcher.
func enginePrograms(t *testing.T) (dir string) {
	t.Helper()
	dir, err := builtEngines()
	require.NoError(t, err)
	return dir
}

// withEngines changes a configuration to a function with engines of a name.
func withEngines(dir, engine string) func(*manager.Config) {
	return func(c *manager.Config) {
		device := &c.Policy.Device
		c.Policy.Functions = []manager.FunctionPolicy{{
			Name: "mock0", Driver: filepath.Join(dir, "engineuser"), MemoryBytes: device.MemoryBytes, IOVAEntries: device.IOVAEntries, Respawn: device.Respawn,
			Node: &manager.NodePolicy{Kind: "lane", Engine: filepath.Join(dir, engine), Most: 2, EngineBytes: 1 << 30},
		}}
		c.LauncherPath = filepath.Join(dir, "launcher")
	}
}

// of returns the details of a kind.
func (l *memoryLog) of(kind string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if r.Kind == kind {
			found = append(found, r.Detail)
		}
	}
	return found
}

// A driver opens engines, kills one, and its own death kills the others.
func TestEngines(t *testing.T) {
	dir := enginePrograms(t)
	have, _ := offered(t)
	w := start(t, func(c *manager.Config) {
		withEngines(dir, "engine")(c)
		c.Policy.Sandbox.Require = have
	})
	_, pid := w.driver(1)
	require.NoError(t, addVectors(within(t), w.open(w.dial("default"))))

	opened := w.log.of("engine.open")
	require.Len(t, opened, 3)
	require.Contains(t, opened[0], `mock0 pid=`)
	require.Contains(t, opened[0], `group=7 driver="script 1.0"`)
	require.Len(t, w.log.of("engine.kill"), 1)
	require.Zero(t, w.log.kinds()["sandbox.violation"])

	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	w.driver(2)
	ended := w.log.of("engine.end")
	require.GreaterOrEqual(t, len(ended), 4, "that of the kill, two that were open and one that waited")
	for _, e := range opened[1:] {
		pid, _, _ := strings.Cut(strings.TrimPrefix(e, "mock0 "), " ")
		require.True(t, slices.ContainsFunc(ended, func(s string) bool { return strings.Contains(s, pid+" ") && strings.Contains(s, "signal: killed") }), "%s: %v", pid, ended)
	}
	require.NoError(t, addVectors(within(t), w.open(w.dial("default"))))
}

// An engine that has not set its second filter is no engine.
func TestEngineThatIsNotSealed(t *testing.T) {
	have, _ := offered(t)
	if !slices.Contains(have, sandbox.Seccomp) {
		t.Skip("NOT TESTED: this host has no seccomp")
	}
	dir := enginePrograms(t)
	open := filepath.Join(dir, "engine-open")
	if err := os.Link(filepath.Join(dir, "engine"), open); !errors.Is(err, os.ErrExist) {
		require.NoError(t, err)
	}
	w := start(t, func(c *manager.Config) {
		withEngines(dir, "engine-open")(c)
		c.Policy.Sandbox.Require = []sandbox.Mechanism{sandbox.Seccomp}
		c.Policy.Functions[0].Respawn.Budget = 0
	})
	st := w.await(w.dial("default"), 0, client.Wedged)
	require.Contains(t, st.Cause, "it has set 1 of its 2 system call filters")
}

// A manager that is killed leaves no engine, and its journal is read by the next one.
func TestJournalOfEngines(t *testing.T) {
	dir, run := enginePrograms(t), filepath.Join(shortDir(t), "run")
	require.NoError(t, os.Mkdir(run, 0o700))
	left := exec.Command("/bin/sleep", "60")
	require.NoError(t, left.Start())
	id, err := sandbox.ProcessID(left.Process.Pid)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(run, "engines.mock0"), []byte(id+"\n"), 0o600))
	w := start(t, func(c *manager.Config) {
		withEngines(dir, "engine")(c)
		c.RunDir = run
	})
	require.ErrorContains(t, left.Wait(), "killed")
	w.driver(1)
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(run, "engines.mock0"))
		return err == nil && strings.Count(string(text), "\n") == 3 // two open, one waits
	}, patience, time.Millisecond)
}
