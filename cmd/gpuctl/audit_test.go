package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	require.Contains(t, i.out.String(), "It agrees with the known head.")
	i = run(0, "verify", "--log", path, "--known", known, "--known", known, "--json")
	require.Contains(t, i.out.String(), `"intact": true`)

	i = run(0, "show", "--log", path)
	require.Equal(t, 5, bytes.Count(i.out.Bytes(), []byte("\n")))
	require.NotContains(t, i.out.String(), "\x1b", "a record must not drive the terminal")
	require.Equal(t, 3, bytes.Count(i.out.Bytes(), []byte("tenant=")), "those of the service are of no tenant")
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
	require.Regexp(t, `audit.log is NOT intact.\n  record 1, at byte \d+ of audit.log: `, i.out.String())
	i = run(1, "verify", "--log", path, "--json")
	require.Contains(t, i.out.String(), `"intact": false`)
	i = run(1, "show", "--log", path)
	require.Contains(t, i.out.String(), "session=0")
	require.Contains(t, i.err.String(), "audit record 1, at byte")

	// The log is cut at a record's end: only a kept head reveals that.
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

// A log of several files looks like one log.
func TestAuditAcrossFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(path, audit.Options{MaxBytes: audit.MinMaxBytes, Keep: 2})
	require.NoError(t, err)
	var heads []string
	for i := range 60 {
		_, err := log.Append("session.open", "alice", fmt.Sprintf("session=%d %s", i, bytes.Repeat([]byte("."), 900)))
		require.NoError(t, err)
		head, err := log.Head()
		require.NoError(t, err)
		heads = append(heads, headText("", head))
	}

	require.NoError(t, log.Close())
	report, err := audit.Verify(path)
	require.NoError(t, err)
	run := func(exit int, args ...string) *invocation {
		t.Helper()
		i := gpuctl(context.Background(), nil, false, append([]string{"audit"}, args...)...)
		require.Equal(t, exit, i.exit, "%s%s", &i.out, &i.err)
		return i
	}

	there := report.Head.Size - report.First
	i := run(0, "verify", "--log", path, "--known", heads[1], "--known", heads[59], "--known", heads[58])
	require.Equal(t, fmt.Sprintf("%s is intact: %d records in 3 files, %s.\n", path, there, bytesText(uint64(report.Bytes)))+
		fmt.Sprintf("  Records before %d were rotated away.\n", report.First)+
		fmt.Sprintf("  Not checked, for its records were rotated away: known head %s\n", heads[1])+
		"  It agrees with 2 known heads.\n"+
		fmt.Sprintf("  head %s\n", heads[59]), i.out.String())

	i = run(0, "verify", "--log", path, "--known", heads[1], "--json")
	require.Contains(t, i.out.String(), fmt.Sprintf(`"first": %d,`, report.First))
	require.Contains(t, i.out.String(), `"unnoted": false,`)
	require.Contains(t, i.out.String(), `"files": 3,`)
	require.Contains(t, i.out.String(), heads[1])

	i = run(0, "show", "--log", path)
	require.EqualValues(t, there, bytes.Count(i.out.Bytes(), []byte("\n")))
	require.Equal(t, fmt.Sprintf("Records 0 to %d were rotated away.\n", report.First-1), i.err.String())
	i = run(0, "show", "--log", path, "--from", fmt.Sprint(report.Head.Size-2), "--json")
	require.Equal(t, 2, bytes.Count(i.out.Bytes(), []byte(`"index"`)))
	require.Empty(t, i.err.String())

	full, err := filepath.Glob(path + ".*")
	require.NoError(t, err)
	require.Len(t, full, 2)
	data, err := os.ReadFile(full[1])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(full[1], bytes.Replace(data, []byte("alice"), []byte("clara"), 1), 0o600))
	i = run(1, "verify", "--log", path)
	require.Regexp(t, `audit.log is NOT intact.\n  record \d+, at byte \d+ of audit.log.\d{6}: `, i.out.String())
	i = run(1, "show", "--log", path)
	require.Regexp(t, `audit record \d+, at byte \d+ of audit.log.\d{6}, is not`, i.err.String())
	require.NoError(t, os.WriteFile(full[1], data, 0o600))

	require.NoError(t, os.Remove(full[0]))
	i = run(0, "verify", "--log", path)
	require.Contains(t, i.out.String(), "The log does not say that it did that: somebody else took files away.")
	require.NoError(t, os.Rename(full[1], full[0]))
	i = run(1, "verify", "--log", path)
	require.Contains(t, i.out.String(), "by its header it is segment")
}

// A driver writes under its own name. Its records belong to the tenant that they
// name first, and to no other that they name.
func TestAuditShowOfATenant(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(path, audit.Options{})
	require.NoError(t, err)
	for _, r := range [][3]string{
		{"session.attach", "alice", "mock0 epoch=1 session=1"},
		{"session.open", "@mock0", "tenant=alice session=1"},
		{"session.open", "@mock0", "tenant=alicette session=2"},
		{"fault", "@mock0", "tenant=bob session=3 cause=\"tenant=alice\""},
		{"manager.stop", "", "tenant=alice"},
	} {
		_, err := log.Append(r[0], r[1], r[2])
		require.NoError(t, err)
	}

	require.NoError(t, log.Close())
	i := gpuctl(context.Background(), nil, false, "audit", "show", "--log", path, "--tenant", "alice")
	require.Zero(t, i.exit, "%s", &i.err)
	require.Equal(t, 2, bytes.Count(i.out.Bytes(), []byte("\n")), "%s", &i.out)
	require.Contains(t, i.out.String(), "session.attach")
	require.Contains(t, i.out.String(), "tenant=alice session=1")
}

// The logs of a host are shown as one and verified one by one, and missing ones are
// named.
func TestAuditOfOwners(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	set, err := audit.OpenSet(path, audit.Options{}, audit.Options{})
	require.NoError(t, err)
	put := func(l interface {
		Append(kind, tenant, detail string) (uint64, error)
	}, kind, tenant, detail string) {
		t.Helper()
		_, err := l.Append(kind, tenant, detail)
		require.NoError(t, err)
	}

	put(set, "manager.start", "", "pid=1")
	alice, err := set.Keep(audit.OfTenant("alice"))
	require.NoError(t, err)
	bob, err := set.Keep(audit.OfTenant("bob"))
	require.NoError(t, err)
	put(alice, "session.attach", "alice", "mock0 epoch=1 session=1")
	put(bob, "session.open", "@mock0", "tenant=bob session=1")
	put(set, "manager.stop", "", "pid=1")
	head, err := alice.Head()
	require.NoError(t, err)
	require.NoError(t, set.Close())
	run := func(exit int, args ...string) *invocation {
		t.Helper()
		i := gpuctl(context.Background(), nil, false, append([]string{"audit"}, args...)...)
		require.Equal(t, exit, i.exit, "%s%s", &i.out, &i.err)
		return i
	}

	i := run(0, "show", "--log", path)
	require.Regexp(t, `(?s)^0 \S+ manager.start pid=1\n.*\ntenant-alice/1 \S+ session.attach tenant=alice .*\ntenant-bob/1 \S+ session.open tenant=@mock0 .*\n3 \S+ manager.stop pid=1\n$`, i.out.String())
	i = run(0, "show", "--log", path, "--tenant", "bob", "--json")
	require.Contains(t, i.out.String(), `"log": "tenant-bob.log"`)
	i = run(0, "show", "--log", path, "--from", "3")
	require.Equal(t, 1, bytes.Count(i.out.Bytes(), []byte("\n")), "of that log alone")
	i = run(0, "show", "--log", path+".d/tenant-alice.log")
	require.Contains(t, i.out.String(), "session.attach")

	aliceHead := headText("tenant-alice.log", head)
	i = run(0, "verify", "--log", path, "--known", aliceHead)
	require.Contains(t, i.out.String(), "/tenant-alice.log is intact: 2 records")
	require.Contains(t, i.out.String(), "It agrees with the known head.\n  head "+aliceHead)
	i = run(0, "verify", "--log", path, "--json")
	require.Contains(t, i.out.String(), `"head": "`+aliceHead+`"`)
	i = run(1, "verify", "--log", path, "--known", strings.Replace(aliceHead, "=2:", "=9:", 1))
	require.Contains(t, i.out.String(), "tenant-alice.log is NOT intact")
	i = run(2, "verify", "--log", path, "--known", strings.Replace(aliceHead, "alice", "mallory", 1))
	require.Contains(t, i.err.String(), "there is no such log in")

	text, err := os.ReadFile(path + ".d/tenant-bob.log")
	require.NoError(t, err)
	text[len(text)-1] ^= 1
	require.NoError(t, os.WriteFile(path+".d/tenant-bob.log", text, 0o600))
	i = run(1, "verify", "--log", path)
	require.Contains(t, i.out.String(), "/tenant-bob.log is NOT intact")
	require.Contains(t, i.out.String(), "/tenant-alice.log is intact")
	i = run(1, "show", "--log", path)
	require.Contains(t, i.out.String(), "tenant-alice/1 ")
	require.Contains(t, i.err.String(), "of tenant-bob.log")

	require.NoError(t, os.Remove(path+".d/tenant-bob.log"))
	i = run(0, "verify", "--log", path)
	require.Contains(t, i.out.String(), "tenant-bob.log was begun, and is not there: somebody took it away")
}
