package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/internal/leakcheck"
	"capgpu/internal/sandbox/devguard"
)

// intruderEnv turns the test binary into a confined process that makes a forbidden attempt:
// "STEPS ACTION".
const intruderEnv = "CAPGPU_SANDBOX_INTRUDER"

// No test runs on the main thread, which does not end with the test: the effects of a test on
// its thread would stay (TestInheritedFilterDoesNotCount).
func init() {
	if os.Getenv(intruderEnv) == "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if what := os.Getenv(intruderEnv); what != "" {
		os.Exit(intrude(what))
	}
	os.Exit(leakcheck.Run(m, func() { os.RemoveAll(staticDir) }))
}

var staticDir string

// intrude takes the steps of a sandbox and then one forbidden step. Its standard output is
// the result.
func intrude(what string) int {
	steps, action, _ := strings.Cut(what, " ")
	if action == "sleep" {
		unix.CloseOnExec(3) // as a program does with its descriptors
	}
	try := actions[action]
	if action == "several" {
		try = func() error { return several(os.Getenv("TARGET_ACTIONS")) }
	}
	if try == nil {
		fmt.Println("no such action:", action)
		return 2
	}
	for step := range strings.SplitSeq(steps, ",") {
		var err error
		switch step {
		case "driver":
			err = Enter(Driver, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		case "gate":
			err = Enter(Gate, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		case "root":
			err = emptyRoot()
		case "capabilities":
			err = errors.Join(noNewPrivs(), dropCapabilities())
		case "landlock":
			var abi int
			if abi, err = landlockABI(); err == nil {
				err = errors.Join(noNewPrivs(), restrict(landlockRules(abi), nil))
			}
		case "launch":
			var l Launched
			if l, err = ParseLaunched([]byte(os.Getenv("TARGET_LAUNCH"))); err == nil {
				err = Launch(l, len(os.Getenv("TARGET_KEEP")), slog.New(slog.NewTextHandler(os.Stderr, nil)))
			}
		case "seal":
			err = Seal(Sealed{})
		case "sealF":
			err = Seal(Sealed{Ioctl: []byte{'d', 'F'}, Open: true})
		case "none":
		default:
			err = fmt.Errorf("no such step: %s", step)
		}
		if err != nil {
			fmt.Println("step", step, err)
			return 2
		}
	}
	fmt.Println("did it:", try())
	return 0
}

// several tries actions, which are divided by "|", and returns a line for each.
func several(names string) error {
	var said []string
	for name := range strings.SplitSeq(names, "|") {
		said = append(said, fmt.Sprintf("%s: %v", name, actions[name]()))
	}
	return errors.New(strings.Join(said, "\n"))
}

// static is a test binary in which Enter works: this one, or one built without
// cgo.
var static = sync.OnceValues(func() (string, error) {
	if checkThreads() == nil {
		return os.Executable()
	}
	dir, err := os.MkdirTemp("", "sandboxtest")
	if err != nil {
		return "", err
	}
	staticDir = dir
	path := filepath.Join(dir, "sandbox.test")
	cmd := exec.Command("go", "test", "-c", "-o", path, "capgpu/internal/sandbox")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build a static test: %w\n%s", err, out)
	}
	return path, nil
})

// outcome is how an intruder ended.
type outcome struct {
	said   string // on standard output
	log    string // on standard error
	killed bool   // for a system call
	state  *os.ProcessState
}

// did returns the result of the action.
func (o outcome) did(t *testing.T) string {
	t.Helper()
	_, did, ok := strings.Cut(strings.TrimSpace(o.said), "did it: ")
	require.True(t, ok, "%v: %s%s", o.state, o.said, o.log)
	return did
}

func newJailer(t *testing.T, require_ ...Mechanism) *Jailer {
	t.Helper()
	j, err := New(Options{Require: require_, GuardDevices: devguard.Attach, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Close()) })
	return j
}

func newCell(t *testing.T, j *Jailer, p *Profile, l Limits) *Cell {
	t.Helper()
	c, err := j.Cell("test", p, l)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func intruder(t *testing.T, steps, action string) *exec.Cmd {
	t.Helper()
	path, err := static()
	require.NoError(t, err)
	cmd := exec.Command(path)
	cmd.Env = []string{intruderEnv + "=" + steps + " " + action}
	for _, name := range []string{"TARGET_PID", "TARGET_FILE", "TARGET_ADDR", "TARGET_FD", "TARGET_LAUNCH"} {
		cmd.Env = append(cmd.Env, name+"="+os.Getenv(name))
	}
	return cmd
}

// run starts an intruder in a cell and waits for its end.
func run(t *testing.T, c *Cell, steps, action string) outcome {
	t.Helper()
	return finish(t, c, intruder(t, steps, action))
}

func finish(t *testing.T, c *Cell, cmd *exec.Cmd) outcome {
	t.Helper()
	var said, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &log
	require.NoError(t, c.Start(cmd))
	timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
	return outcome{said.String(), log.String(), Violated(cmd.ProcessState.Sys().(syscall.WaitStatus)), cmd.ProcessState}
}

// needs skips a test, loudly, where the host does not offer a mechanism.
func needs(t *testing.T, j *Jailer, list ...Mechanism) {
	t.Helper()
	for _, m := range list {
		if why := j.why(m); why != nil {
			t.Skipf("NOT TESTED: %s: %v", m, why)
		}
	}
}

// sleeper starts an intruder that sleeps once it is confined.
func sleeper(t *testing.T, c *Cell, steps string) (pid int) {
	t.Helper()
	cmd := intruder(t, steps, "sleep")
	r, w, err := os.Pipe()
	require.NoError(t, err)
	cmd.ExtraFiles = []*os.File{w}
	cmd.Stderr = os.Stderr
	require.NoError(t, c.Start(cmd))
	w.Close()
	_, err = r.Read(make([]byte, 1))
	r.Close()
	require.NoError(t, err, "it sleeps")
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

// runWith is run with one more variable.
func runWith(t *testing.T, c *Cell, steps, action, env string) outcome {
	name, value, _ := strings.Cut(env, "=")
	t.Setenv(name, value)
	return run(t, c, steps, action)
}
