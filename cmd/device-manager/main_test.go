package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/audit"
	"capgpu/client"
	"capgpu/manager"
)

func TestHelpAndVersion(t *testing.T) {
	var out, errs bytes.Buffer
	require.Zero(t, runCommand([]string{"--help"}, &out, &errs))
	for _, flag := range []string{"--dev", "--policy", "--run-dir", "--state", "--audit", "--driver", "--service", "--gate", "--log-format", "--list-functions", "--check-policy", "--json", "--version"} {
		require.Contains(t, out.String(), flag)
	}
	out.Reset()
	require.Zero(t, runCommand([]string{"--version"}, &out, &errs))
	require.Contains(t, out.String(), "device-manager ")
	require.Empty(t, errs.String())
}

func TestWrongCommandLine(t *testing.T) {
	for _, args := range [][]string{{"--no-such-flag"}, {"extra"}, {"--log-format", "xml"}, {"--json"}} {
		var out, errs bytes.Buffer
		require.Equal(t, 2, runCommand(args, &out, &errs), args)
		require.Contains(t, errs.String(), "see device-manager --help")
	}
}

// A second manager on a run directory reports the conflict.
func TestSecondManager(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	log, err := audit.Open(filepath.Join(dir, "audit.log"), audit.Options{})
	require.NoError(t, err)
	defer log.Close()
	var out, errs bytes.Buffer
	require.Equal(t, 1, runCommand([]string{"--dev", "--run-dir", dir}, &out, &errs))
	require.Contains(t, errs.String(), "another device-manager writes the audit log "+dir)
	require.Contains(t, errs.String(), "--run-dir")
}

// A user without the right to make the run directory learns of the alternatives.
func TestRunDirOfSomebodyElse(t *testing.T) {
	const dir = "/sys/capgpu" // not even root can make a directory there
	if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrPermission) {
		t.Skipf("make %s: %v", dir, err)
	}
	var out, errs bytes.Buffer
	require.Equal(t, 1, runCommand([]string{"--dev", "--run-dir", dir}, &out, &errs))
	require.Contains(t, errs.String(), "give it another --run-dir, or use --dev")
}

func TestOptions(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	o, _, err := parseOptions([]string{"--dev", "--driver", "bin/gpu-mock"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "/run/user/7/capgpu", o.runDir)
	require.True(t, filepath.IsAbs(o.driver), "children run in /")
	require.Equal(t, "gpu-gate", filepath.Base(o.gate))
	require.Equal(t, "gpu-service", filepath.Base(o.service))
	require.Equal(t, o.runDir, o.state)

	o, _, err = parseOptions(nil, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "/run/capgpu", o.runDir)
	require.Equal(t, "/etc/capgpu/policy.json", o.policyPath)
	require.Equal(t, "/var/lib/capgpu", o.state)

	t.Setenv("XDG_RUNTIME_DIR", "")
	o, _, err = parseOptions([]string{"--dev"}, io.Discard)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(o.runDir, os.TempDir()))
}

func TestPolicyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.json")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	o := &options{policyPath: path}

	_, err := o.policy()
	require.ErrorContains(t, err, "start from packaging/policy.json")

	write("{\n \"tenats\": []}")
	_, err = o.policy()
	require.ErrorContains(t, err, path+": line 2, column 2: the policy has no field \"tenats\"")

	write(`{"device": {"faults": "f.json"}, "tenants": [{"name": "a", "allowedUids": "any"}]}`)
	_, err = o.policy()
	require.ErrorContains(t, err, "device.faults is for developer mode")
	o.dev = true
	p, err := o.policy()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(filepath.Dir(path), "f.json"), p.Device.Faults, "beside the policy")

	o.policyPath = ""
	p, err = o.policy()
	require.NoError(t, err)
	require.Equal(t, manager.DevPolicy().Tenants[0].Name, p.Tenants[0].Name)
}

// A fault script that would stop every driver is found before any starts.
func TestDriverArgs(t *testing.T) {
	require.Empty(t, driverArgs(&manager.DevicePolicy{}, ""))
	p, err := manager.ParsePolicy([]byte(`{"device": {"engine": "lane", "subgroup": 64}, "tenants": [{"name": "a", "allowedUids": "any"}]}`))
	require.NoError(t, err)
	require.Equal(t, []string{"--faults", "{}", "--engine", "lane", "--subgroup", "64"}, driverArgs(&p.Device, "{}"))
}

func TestBadFaultScript(t *testing.T) {
	dir := t.TempDir()
	policy, script := filepath.Join(dir, "policy.json"), filepath.Join(dir, "faults.json")
	require.NoError(t, os.WriteFile(policy, []byte(`{"device": {"faults": "faults.json"}, "tenants": [{"name": "a", "allowedUids": "any"}]}`), 0o600))
	start := func() string {
		var out, errs bytes.Buffer
		run := filepath.Join(dir, "run")
		require.Equal(t, 1, runCommand([]string{"--dev", "--policy", policy, "--run-dir", run}, &out, &errs))
		require.NoDirExists(t, run, "nothing was begun")
		return errs.String()
	}

	require.Contains(t, start(), "read the fault script that device.faults of the policy names: open "+script)
	require.NoError(t, os.WriteFile(script, []byte(`{"faults": [{"kind": "nonsense"}]}`), 0o600))
	require.Contains(t, start(), "fault script "+script+": ")
	require.NoError(t, os.WriteFile(script, []byte(`{"faults": [{"kind": "hang", "job": 3}]}`), 0o600))
	text, err := readFaults(script)
	require.NoError(t, err)
	require.Equal(t, `{"faults": [{"kind": "hang", "job": 3}]}`, text)
	text, err = readFaults("")
	require.NoError(t, err)
	require.Empty(t, text)
	require.NoError(t, os.WriteFile(script, bytes.Repeat([]byte(" "), maxFaultsBytes+1), 0o600))
	require.Contains(t, start(), "it may have 65536")
}

func TestAuditPath(t *testing.T) {
	dir := t.TempDir()
	o := &options{runDir: filepath.Join(dir, "run")}
	p := manager.DevPolicy()
	path, err := o.auditPath(p)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "run", "audit.log"), path)
	p.Audit.Path = filepath.Join(dir, "lib", "audit.log")
	path, err = o.auditPath(p)
	require.NoError(t, err)
	require.Equal(t, p.Audit.Path, path)
	require.DirExists(t, filepath.Join(dir, "lib"))
	o.audit = filepath.Join(dir, "mine")
	path, err = o.auditPath(p)
	require.NoError(t, err)
	require.Equal(t, o.audit, path, "the command line wins")
}

// A run directory that another user has prepared gets no audit log.
func TestSquattedRunDir(t *testing.T) {
	dir := t.TempDir()
	trap, run := filepath.Join(dir, "trap"), filepath.Join(dir, "run")
	require.NoError(t, os.Mkdir(trap, 0o700))
	require.NoError(t, os.Symlink(trap, run))
	var out, errs bytes.Buffer
	require.Equal(t, 1, runCommand([]string{"--dev", "--run-dir", run}, &out, &errs))
	require.Contains(t, errs.String(), "not a directory")
	left, err := os.ReadDir(trap)
	require.NoError(t, err)
	require.Empty(t, left)
}

// buildPrograms builds the programs of a stack, in a folder with a short path.
func buildPrograms(t *testing.T) (bin string) {
	t.Helper()
	bin, err := os.MkdirTemp("", "cg")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(bin) })
	for _, name := range []string{"device-manager", "gpu-mock", "gpu-gate"} {
		build := exec.Command("go", "build", "-o", filepath.Join(bin, name), "capgpu/cmd/"+name)
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // as installed; only static programs are confined
		out, err := build.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return bin
}

// Developer mode as a person uses it: start, work, reload, Ctrl-C.
func TestDeveloperMode(t *testing.T) {
	bin := buildPrograms(t)
	cmd := exec.Command(filepath.Join(bin, "device-manager"), "--dev")
	cmd.Env = []string{"XDG_RUNTIME_DIR=" + bin}
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill()

	lines := bufio.NewScanner(stderr)
	var output []string
	until := func(want string) {
		for lines.Scan() {
			output = append(output, lines.Text())
			if strings.Contains(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("device-manager ended without %q:\n%s", want, strings.Join(output, "\n"))
	}

	timer := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
	defer timer.Stop()
	run := filepath.Join(bin, "capgpu")
	until("device mock0 ready (epoch 1, driver pid ")
	require.Contains(t, strings.Join(output, "\n"), "--socket "+filepath.Join(run, "default.sock")+" devices")

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, filepath.Join(run, "default.sock"))
	require.NoError(t, err)
	defer c.Close()

	s, err := c.Open(ctx, 0)
	require.NoError(t, err)

	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	until("policy reloaded")

	var pid int
	for _, line := range output {
		fmt.Sscanf(line, "capgpu: device mock0 ready (epoch 1, driver pid %d)", &pid)
	}

	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	until("device mock0 ready (epoch 2")
	deaths := 0
	for _, line := range output {
		if strings.Contains(line, "killed") {
			deaths++
		}
	}

	require.Equal(t, 1, deaths, "a death is reported once:\n%s", strings.Join(output, "\n"))
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	until("capgpu: stopped")
	require.NoError(t, cmd.Wait())
	<-s.Done()
	<-c.Done()

	left, err := filepath.Glob(filepath.Join(run, "*.sock"))
	require.NoError(t, err)
	require.Empty(t, left)
	path := filepath.Join(run, "audit.log")
	paths, err := audit.Paths(path)
	require.NoError(t, err)
	require.Len(t, paths, 1+2+3, "the host's, those of the device and its drivers, and those of the tenants")
	for _, p := range paths {
		_, err = audit.Verify(p)
		require.NoError(t, err)
	}

	records, err := audit.ReadAll(path)
	require.NoError(t, err)
	require.Equal(t, "manager.start", records[0].Kind)
	require.Equal(t, "manager.stop", records[len(records)-1].Kind)
}
