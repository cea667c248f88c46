package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/audit"
)

func TestAudit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	log, err := audit.Open(path, audit.Options{})
	require.NoError(t, err)
	for i := range 3 {
		_, err := log.Append("session.open", "alice", fmt.Sprintf("session=%d", i))
		require.NoError(t, err)
	}
	require.NoError(t, log.Sync())
	early, err := log.Head()
	require.NoError(t, err)
	for _, kind := range []string{"session.close", "driver.start"} {
		_, err := log.Append(kind, "", "\x1b[2J terminal")
		require.NoError(t, err)
	}
	require.NoError(t, log.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)

	run := func(exit int, args ...string) *invocation {
		t.Helper()
		i := gpuctl(context.Background(), nil, false, append([]string{"audit"}, args...)...)
		require.Equal(t, exit, i.exit, "%s%s", &i.out, &i.err)
		return i
	}
	known := fmt.Sprintf("%d:%s", early.Size, hex.EncodeToString(early.Root[:]))

	i := run(0, "verify", "--log", path)
	require.Regexp(t, `audit.log is intact: 5 records, \d+ B\.\n  head 5:[0-9a-f]{64}\n  That nothing was cut off`, i.out.String())
	i = run(0, "verify", "--log", path, "--known", known)
	require.Contains(t, i.out.String(), "It begins with the records of the known head.")
	i = run(0, "verify", "--log", path, "--known", known, "--known", known, "--json")
	require.Contains(t, i.out.String(), `"intact": true`)

	i = run(0, "show", "--log", path)
	require.Equal(t, 5, bytes.Count(i.out.Bytes(), []byte("\n")))
	require.NotContains(t, i.out.String(), "\x1b", "a record must not drive the terminal")
	i = run(0, "show", "--log", path, "--kind", "session", "--max", "2", "--from", "1")
	require.Equal(t, 2, bytes.Count(i.out.Bytes(), []byte("\n")))
	require.Contains(t, i.out.String(), "session=1")
	i = run(0, "show", "--log", path, "--tenant", "bob")
	require.Equal(t, "No such record.\n", i.out.String())
	i = run(0, "show", "--log", path, "--kind", "session.open", "--json")
	require.Contains(t, i.out.String(), `"tenant": "alice"`)

	require.NoError(t, os.WriteFile(path, whole[:len(whole)-5], 0o600))
	i = run(0, "verify", "--log", path)
	require.Contains(t, i.out.String(), "are an unfinished record")

	changed := bytes.Replace(whole, []byte("session=1"), []byte("session=7"), 1)
	require.NoError(t, os.WriteFile(path, changed, 0o600))
	i = run(1, "verify", "--log", path)
	require.Regexp(t, `audit.log is NOT intact.\n  record 1, at byte \d+: `, i.out.String())
	i = run(1, "verify", "--log", path, "--json")
	require.Contains(t, i.out.String(), `"intact": false`)
	i = run(1, "show", "--log", path)
	require.Contains(t, i.out.String(), "session=0")
	require.Contains(t, i.err.String(), "audit record 1, at byte")

	// Cut off at a record's end: only a kept head tells.
	require.NoError(t, os.WriteFile(path, whole[:len(whole)*2/5], 0o600))
	i = run(1, "verify", "--log", path, "--known", known)
	require.Contains(t, i.out.String(), "cut off")

	i = run(2, "verify", "--log", path, "--known", "5:abc")
	require.Contains(t, i.err.String(), "write SIZE:ROOT")
	i = run(2, "show", "--log", path, "--max=-1")
	require.Contains(t, i.err.String(), "--max must not be negative")
	i = run(2, "verify")
	require.Contains(t, i.err.String(), "--log")
	i = run(1, "verify", "--log", filepath.Join(dir, "nosuch"))
	require.Contains(t, i.err.String(), "no such file")
}
