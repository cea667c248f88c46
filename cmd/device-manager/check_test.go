package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// check runs --check-policy on a policy, and returns its exit status and its
// output.
func check(t *testing.T, policy string, args ...string) (exit int, out, errs string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.json")
	require.NoError(t, os.WriteFile(path, []byte(policy), 0o600))
	var stdout, stderr bytes.Buffer
	exit = runCommand(append([]string{"--check-policy", "--policy", path, "--run-dir", filepath.Join(dir, "run")}, args...), &stdout, &stderr)
	require.NoDirExists(t, filepath.Join(dir, "run"), "nothing is made")
	return exit, stdout.String(), stderr.String()
}

func TestCheckPolicy(t *testing.T) {
	exit, out, errs := check(t, `{"device": {"memory": "64MiB"}, "tenants": [{"name": "a", "allowedUids": [0, 7], "socket": {"owner": 0, "group": 0}, "facet": "program", "weight": 3}, {"name": "b", "allowedUids": [1000]}]}`)
	require.Zero(t, exit, errs)
	require.Contains(t, out, "is good\n  function mock0: the fake function, 64 MiB of memory\n")
	require.Contains(t, out, "  tenant a: user 0, 7; sockets of 0:0, mode 0600; facet program, weight 3\n")
	require.Contains(t, out, "  tenant b: user 1000; sockets of 1000:", "the one user's own")
	require.Contains(t, out, "note: tenant a: user 7 is allowed and cannot open the sockets, which user 0 owns with mode 0600\n")
	require.Contains(t, out, "no device-manager runs in ")

	for policy, want := range map[string]string{
		`{"tenants": []}`: "no tenant may connect",
		`{"tenants": [{"name": "a", "allowedUids": "any", "programs": ["saxpy_f32", "nosuch"]}]}`:                              `line 1, column 76: tenants[0].programs[1]: no driver has a built-in program "nosuch"`,
		`{"device": {"memory": "1024TiB"}, "tenants": [{"name": "a", "allowedUids": "any"}]}`:                                  "may hold 1073741824 MiB of memory together, and this host has",
		`{"device": {"faults": "f.json"}, "tenants": [{"name": "a", "allowedUids": "any"}]}`:                                   "device.faults is for developer mode",
		`{"tenants": [{"name": "a", "allowedUids": [5, 6], "socket": {"owner": 0}}]}`:                                          "none of them can open its sockets",
		`{"functions": [{"address": "0000:01:00.0", "driver": "/no/such"}], "tenants": [{"name": "a", "allowedUids": "any"}]}`: "/no/such, is no program here",
	} {
		exit, out, errs := check(t, policy)
		require.Equal(t, 1, exit, policy)
		require.Empty(t, out)
		require.Contains(t, errs, want)

		exit, out, errs = check(t, policy, "--json")
		require.Equal(t, 1, exit, policy)
		require.Contains(t, errs, "the policy would be refused")
		var c checked
		require.NoError(t, json.Unmarshal([]byte(out), &c))
		require.False(t, c.OK)
		require.Contains(t, c.Error, want)
	}

	exit, out, errs = check(t, `{"tenants": [{"name": "a", "allowedUids": "any"}]}`, "--json")
	require.Zero(t, exit, errs)
	var c checked
	require.NoError(t, json.Unmarshal([]byte(out), &c))
	require.True(t, c.OK)
	require.False(t, c.Running)
	require.Equal(t, "a", c.Tenants[0].Name)
	require.Equal(t, "full", c.Tenants[0].Facet)

	var stdout, stderr bytes.Buffer
	require.Equal(t, 1, runCommand([]string{"--check-policy", "--policy", "/no/such/file"}, &stdout, &stderr))
	require.Equal(t, 2, runCommand([]string{"--check-policy", "extra"}, &stdout, &stderr))
	require.Zero(t, runCommand([]string{"--check-policy", "--dev"}, &stdout, &stderr), "developer mode's own policy is good")
}
