package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/audit"
	"capgpu/client"
	"capgpu/gpuerr"
)

// execReload are the commands of the unit's reload. systemd runs them one after the
// other until one fails (systemd.service(5)).
func execReload(t *testing.T) (commands [][]string) {
	t.Helper()
	unit, err := os.ReadFile("../../packaging/capgpu.service")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^ExecReload=(.*)$`).FindAllSubmatch(unit, -1) {
		commands = append(commands, strings.Fields(string(m[1])))
	}
	return commands
}

// A reload as systemd does it. With a policy that would be refused it fails,
// reports why and changes nothing. With a good policy it reports the changes, and
// then they are in effect.
func TestReloadAsTheUnitDoes(t *testing.T) {
	bin := buildPrograms(t)
	policy, run := filepath.Join(bin, "policy.json"), filepath.Join(bin, "run")
	uid := os.Getuid()
	write := func(text string) { require.NoError(t, os.WriteFile(policy, []byte(text), 0o600)) }
	write(fmt.Sprintf(`{"device": {"memory": "64MiB"}, "tenants": [{"name": "a", "allowedUids": [%d]}, {"name": "b", "allowedUids": [%d]}]}`, uid, uid))
	cmd := exec.Command(filepath.Join(bin, "device-manager"), "--dev", "--policy", policy, "--run-dir", run)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill()

	timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer timer.Stop()
	lines := bufio.NewScanner(stderr)
	until := func(want string) (said string) {
		for lines.Scan() {
			said += lines.Text() + "\n"
			if strings.Contains(lines.Text(), want) {
				return said
			}
		}
		t.Fatalf("device-manager ended without %q:\n%s", want, said)
		return ""
	}

	until("device mock0 ready")

	reload := func() (said string, err error) {
		commands := execReload(t)
		require.Len(t, commands, 2)
		require.Equal(t, []string{"/bin/kill", "-HUP", "$MAINPID"}, commands[1])
		require.Equal(t, "/usr/libexec/capgpu/device-manager", commands[0][0])
		check := exec.Command(filepath.Join(bin, "device-manager"), append(commands[0][1:], "--dev", "--run-dir", run)...)
		for i, arg := range check.Args {
			if arg == "/etc/capgpu/policy.json" {
				check.Args[i] = policy
			}
		}
		out, err := check.CombinedOutput()
		if err == nil {
			require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
		}
		return string(out), err
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	open := func(tenant string) *client.Session {
		c, err := client.Dial(ctx, filepath.Join(run, tenant+".sock"))
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		s, err := c.OpenReady(ctx, 0)
		require.NoError(t, err)
		return s
	}

	a, b := open("a"), open("b")

	for text, why := range map[string]string{
		`{"tenants": [`: "the file ends in the middle",
		`{"device": {"memory": "1024TiB"}, "tenants": [{"name": "a", "allowedUids": "any"}]}`: "this host has",
		// Valid on its own, but more than the running one has room for.
		fmt.Sprintf(`{"tenants": [%s{"name": "z", "allowedUids": "any"}]}`, manyTenants()): "would refuse it: the policy's connections need",
	} {
		write(text)
		said, err := reload()
		require.Error(t, err, text)
		require.Contains(t, said, why)
	}

	require.NoError(t, a.Err())
	require.NoError(t, b.Err())

	write(fmt.Sprintf(`{"device": {"memory": "32MiB"}, "tenants": [{"name": "a", "allowedUids": [%d], "weight": 3}, {"name": "c", "allowedUids": [%d]}]}`, uid, uid))
	said, err := reload()
	require.NoError(t, err, said)
	for _, want := range []string{"tenant c would be added", "tenant a would be changed (weight)", "tenant b would be removed: 1 session and 1 connection would end", "would need a restart: device"} {
		require.Contains(t, said, want)
	}

	done := until("policy reloaded")
	for _, want := range []string{"tenant c added", "tenant a changed (weight)", "tenant b removed: 1 session and 1 connection ended", "needs a restart, and stays as it was: device"} {
		require.Contains(t, done, want)
	}

	select {
	case <-b.Done():
		require.ErrorIs(t, b.Err(), gpuerr.Revoked)
		require.ErrorContains(t, b.Err(), "reason=policy")
	case <-ctx.Done():
		require.Fail(t, "it goes on")
	}

	require.NoError(t, open("c").Err())
	require.NoError(t, a.Err())
	require.NoFileExists(t, filepath.Join(run, "b.sock"))

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	until("capgpu: stopped")
	require.NoError(t, cmd.Wait())
	path := filepath.Join(run, "audit.log")
	_, err = audit.Verify(path)
	require.NoError(t, err)
	records, err := audit.Read(path, 0, 1000)
	require.NoError(t, err)
	var told []string
	for _, r := range records {
		if strings.HasPrefix(r.Kind, "policy.") {
			told = append(told, strings.TrimSpace(r.Kind+" "+r.Tenant+" "+r.Detail))
		}
	}

	require.Equal(t, []string{
		`policy.reload  tenants=2 added=1 removed=1 changed=1 restart="device"`,
		`policy.tenant a change=changed fields="weight" sessions=0 connections=0`,
		`policy.tenant c change=added fields="" sessions=0 connections=0`,
		`policy.tenant b change=removed fields="" sessions=1 connections=1`,
	}, told)
}

// manyTenants is the maximal number of tenants minus one, with the maximal number
// of connections each.
func manyTenants() (text string) {
	for i := range 63 {
		text += fmt.Sprintf(`{"name": "t%d", "allowedUids": "any", "maxConnections": 4096}, `, i)
	}
	return text
}
