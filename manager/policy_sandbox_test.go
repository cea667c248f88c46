package manager

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/internal/sandbox"
)

func TestSandboxPolicy(t *testing.T) {
	const tenants = `"tenants": [{"name": "a", "allowedUids": "any"}]`
	p, err := ParsePolicy([]byte(`{` + tenants + `}`))
	require.NoError(t, err)
	require.Equal(t, defaultSandboxPolicy(), p.Sandbox)
	require.Empty(t, p.Sandbox.Require, "nothing is required that a host may not have")

	p, err = ParsePolicy([]byte(`{"sandbox": {"require": ["seccomp", "landlock"], "memory": "64MiB", "gateMemory": "32MiB", "pids": 100, "gatePids": 20, "uids": {"first": 5000, "count": 20}}, ` + tenants + `}`))
	require.NoError(t, err)
	require.Equal(t, SandboxPolicy{
		Require: []sandbox.Mechanism{sandbox.Seccomp, sandbox.Landlock}, MemoryBytes: 64 << 20, GateMemoryBytes: 32 << 20,
		Pids: 100, GatePids: 20, UIDs: sandbox.UIDRange{First: 5000, Count: 20},
	}, p.Sandbox)

	p, err = ParsePolicy([]byte(`{"sandbox": {"require": "all"}, ` + tenants + `}`))
	require.NoError(t, err)
	require.Equal(t, sandbox.Mechanisms, p.Sandbox.Require)

	for text, want := range map[string]string{
		`{"sandbox": []}`:                                       "sandbox must be an object",
		`{"sandbox": {"require": "some"}}`:                      `sandbox.require must be "all" or a list of names`,
		`{"sandbox": {"require": ["magic"]}}`:                   `sandbox.require: there is no mechanism "magic"; the names are user,`,
		`{"sandbox": {"require": [1]}}`:                         "sandbox.require must hold names",
		`{"sandbox": {"require": ["user", "user"]}}`:            `sandbox.require names "user" twice`,
		`{"sandbox": {"pids": 3}}`:                              "sandbox.pids must be a whole number from 16",
		`{"sandbox": {"uids": {"first": 10}}}`:                  "sandbox.uids: users from 10 on",
		`{"sandbox": {"uids": {"count": 9}}}`:                   "sandbox.uids: a range of 9 users is too small",
		`{"sandbox": {"uids": {"first": 2147483000}}}`:          "the last possible one is",
		`{"sandbox": {"uids": {"first": 2147483648}}}`:          "sandbox.uids.first must be a whole number",
		`{"sandbox": {"require": ["user"], "require": "all"} }`: "twice",
	} {
		_, err := ParsePolicy([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
}
