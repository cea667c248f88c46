package manager

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A death is reported before it is reaped, with the same status that the reaper gets.
func TestDeathIsToldBeforeItIsReaped(t *testing.T) {
	for script, want := range map[string]string{
		"exit 3":         "exit status 3",
		"exit 0":         "exit status 0",
		"kill -KILL $$":  "signal: killed",
		"kill -ALRM $$":  "signal: alarm clock",
		"kill -SYS $$ ":  "signal: bad system call",
		"kill -ABRT $$ ": "signal: aborted",
	} {
		cmd := exec.Command("/bin/sh", "-c", script)
		require.NoError(t, cmd.Start())
		status := awaitDeath(cmd.Process.Pid)
		require.NoError(t, syscall.Kill(cmd.Process.Pid, 0), "%s: reaped already", script)
		_ = cmd.Wait()
		require.Equal(t, cmd.ProcessState.Sys(), status, script)
		require.Contains(t, cmd.ProcessState.String(), want, script)
		require.Zero(t, awaitDeath(cmd.Process.Pid), "%s: there is no such child", script)
	}
}
