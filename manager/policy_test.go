package manager

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/audit"
	"capgpu/ledger"
)

func TestPolicyExample(t *testing.T) {
	data, err := os.ReadFile("../packaging/policy.json")
	require.NoError(t, err)
	p, err := ParsePolicy(data)
	require.NoError(t, err)
	require.Len(t, p.Tenants, 2)
	vision := p.Tenant("vision")
	require.Equal(t, []uint32{1000}, vision.AllowedUIDs)
	require.Equal(t, 1000, vision.SocketUID, "sockets that only their owner can open are the one user's who is allowed")
	require.Empty(t, p.Notes())
	require.Equal(t, uint32(1), vision.Facet)
	require.Equal(t, uint32(4), vision.Weight)
	require.Equal(t, uint64(64<<20), vision.Limits[ledger.DeviceMemory])
	require.Equal(t, uint64(24*time.Hour), vision.Limits[ledger.DeviceTime])
	require.Equal(t, defaultTenantLimits()[ledger.Fences], vision.Limits[ledger.Fences], "what is not mentioned keeps its default")
	require.True(t, p.Tenant("default").AnyUID)
	require.Equal(t, os.FileMode(0o660), p.Tenant("default").SocketMode)
	require.Equal(t, time.Minute, p.Device.Respawn.Window)
	require.Equal(t, AuditPolicy{Path: "/var/lib/capgpu/audit.log", Host: AuditBounds{audit.DefaultMaxBytes, audit.DefaultKeep}, Owners: AuditBounds{8 << 20, 7}, DriverBytes: 64 << 20}, p.Audit)

	p, err = ParsePolicy([]byte(`{"audit": {"keep": 0, "maxBytes": "1MiB", "owners": {"keep": 3, "maxBytes": "2MiB"}}, "tenants": [{"name": "a", "allowedUids": "any"}]}`))
	require.NoError(t, err)
	require.Equal(t, AuditPolicy{Host: AuditBounds{MaxBytes: 1 << 20}, Owners: AuditBounds{2 << 20, 3}, DriverBytes: 64 << 20}, p.Audit)
	p, err = ParsePolicy([]byte(`{"tenants": [{"name": "a", "allowedUids": "any"}]}`))
	require.NoError(t, err)
	require.Equal(t, 16, p.Audit.Host.Keep)
}

func TestPolicyErrors(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"empty", ``, "line 1, column 1: the file ends in the middle"},
		{"no tenants", "{}", "line 1, column 1: no tenant may connect"},
		{"unknown", "{\n  \"tenant\": []\n}", `line 2, column 3: the policy has no field "tenant"; remove it or use one of: audit, claim, device, functions, sandbox, tenants`},
		{"twice", "{\"device\": {},\n\"device\": {}}", `line 2, column 1: "device" is here twice`},
		{"escaped twice", `{"device": {}, "\u0064evice": {}}`, `"device" is here twice`},
		{"after", "{\"tenants\": [{\"name\": \"a\", \"allowedUids\": \"any\"}]}\n x", "line 2, column 2: there is something after"},
		{"cut", "{\n\"tenants\": [", "line 2, column 13: the file ends"},
		{"not JSON", "{tenants: 3}", "line 1, column 2: not JSON"},
		{"nobody", `{"tenants": [{"name": "a"}]}`, `tenant "a" admits nobody`},
		{"empty list", `{"tenants": [{"name": "a", "allowedUids": []}]}`, `tenant "a" admits nobody`},
		{"no name", `{"tenants": [{"allowedUids": "any"}]}`, `tenants[0] has no name`},
		{"bad name", `{"tenants": [{"name": "../a", "allowedUids": "any"}]}`, "becomes a file name"},
		{"same name", `{"tenants": [{"name": "a", "allowedUids": "any"}, {"name": "a", "allowedUids": "any"}]}`, `tenant "a" is here twice`},
		{"uid", `{"tenants": [{"name": "a", "allowedUids": [-1]}]}`, "line 1, column 44: tenants[0].allowedUids[0] must be a whole number"},
		{"small audit segment", `{"audit": {"maxBytes": 8191}}`, "line 1, column 24: audit.maxBytes is 8191; a segment of the log has at least 8192 bytes"},
		{"small segment of an owner", `{"audit": {"owners": {"maxBytes": 1}}}`, "audit.owners.maxBytes is 1; a segment of the log has at least 8192 bytes"},
		{"audit keep", `{"audit": {"keep": -1}}`, "audit.keep must be a whole number from 0"},
		{"engine", `{"device": {"engine": "steam"}}`, `line 1, column 23: device.engine must be "auto" or "lane"`},
		{"subgroup", `{"device": {"subgroup": 24}}`, "device.subgroup must be 8, 16, 32 or 64"},
		{"facet", `{"tenants": [{"name": "a", "facet": "all"}]}`, `must be "memory", "program" or "full"`},
		{"size", `{"device": {"memory": "1GB"}}`, `must be a number of bytes`},
		{"size too big", `{"device": {"memory": "99999999TiB"}}`, `must be a number of bytes`},
		{"negative", `{"device": {"memory": -1}}`, "whole number"},
		{"fraction", `{"device": {"memory": 1.5}}`, "whole number"},
		{"mode", `{"tenants": [{"name": "a", "socket": {"mode": "0999"}}]}`, "octal"},
		{"owner", `{"tenants": [{"name": "a", "socket": {"owner": "no such user here"}}]}`, "does not know"},
		{"no programs", `{"tenants": [{"name": "a", "programs": []}]}`, "line 1, column 40: tenants[0].programs is an empty list; leave the field out to allow all"},
		{"class", `{"tenants": [{"name": "a", "limits": {"connections": 3}}]}`, `has no field "connections"`},
		{"delay", `{"device": {"respawn": {"firstDelay": "9s"}}}`, "longer than maxDelay"},
		{"deep", "[[[[[[[[[[[[[[[[[[", "levels of nesting"},
		{"list", "[]", "must be an object"},
		{"null tenants", `{"tenants": null}`, "must be a list"},
		{"weight", `{"tenants": [{"name": "a", "weight": 0}]}`, "from 1 to 1000"},
		{"nobody can connect", `{"tenants": [{"name": "a", "allowedUids": [4000000001, 4000000002]}]}`, `line 1, column 14: tenant "a" admits users [4000000001 4000000002], and none of them can open its sockets`},
		{"nobody may write", `{"tenants": [{"name": "a", "allowedUids": [7], "socket": {"owner": 7, "mode": "0444"}}]}`, "none of them can open its sockets"},
		{"no such program", `{"tenants": [{"name": "a", "allowedUids": "any", "programs": ["nosuch"]}]}`, `line 1, column 63: tenants[0].programs[0]: no driver has a built-in program "nosuch"`},
		{"program of hardware", `{"tenants": [{"name": "a", "allowedUids": "any", "programs": ["edu.factorial"]}]}`, "no driver has"},
		{"not UTF-8", "{\n\"\xff\"", "line 2, column 2: the file is not UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParsePolicy([]byte(c.in))
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestDevPolicy(t *testing.T) {
	p := DevPolicy()
	require.NotNil(t, p.Tenant("default"))
	require.Zero(t, p.Tenant("memory-only").Facet)
	require.EqualValues(t, 1<<20, p.Tenant("limited").Limits[ledger.DeviceMemory])
	require.Nil(t, p.Tenant("nobody"))
}

func FuzzParsePolicy(f *testing.F) {
	for _, name := range []string{"policy.json", "policy-hardware.json"} {
		data, err := os.ReadFile("../packaging/" + name)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"tenants": [{"name": "a", "allowedUids": [0]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParsePolicy(data)
		if err != nil {
			require.Nil(t, p)
			require.Regexp(t, `^line \d+, column \d+: `, err.Error())
			return
		}
		require.NotEmpty(t, p.Tenants)
		for _, tenant := range p.Tenants {
			require.Regexp(t, tenantName, tenant.Name)
			require.True(t, tenant.AnyUID || len(tenant.AllowedUIDs) > 0)
			require.NotZero(t, tenant.MaxConnections)
		}
	})
}

// docs/policy.md names every field that the parser accepts: the field that the parser
// suggests for an unknown one must be in it.
func TestPolicyDocument(t *testing.T) {
	doc, err := os.ReadFile("../docs/policy.md")
	require.NoError(t, err)
	for _, in := range []string{
		`{"?": 0}`, `{"functions": [{"?": 0}]}`, `{"functions": [{"kind": "vulkan", "?": 0}]}`, `{"functions": [{"kind": "vulkan", "engines": {"?": 0}}]}`, `{"functions": [{"windows": [{"?": 0}]}]}`, `{"functions": [{"respawn": {"?": 0}}]}`, `{"device": {"?": 0}}`, `{"device": {"respawn": {"?": 0}}}`, `{"audit": {"?": 0}}`, `{"audit": {"owners": {"?": 0}}}`,
		`{"tenants": [{"?": 0}]}`, `{"tenants": [{"socket": {"?": 0}}]}`, `{"tenants": [{"limits": {"?": 0}}]}`,
	} {
		_, err := ParsePolicy([]byte(in))
		require.Error(t, err)
		_, list, found := strings.Cut(err.Error(), "use one of: ")
		require.True(t, found, "%v", err)
		for _, field := range strings.Split(list, ", ") {
			require.Regexp(t, "[`.]"+field+"[`.]", string(doc), "docs/policy.md does not say what %q is (%s)", field, in)
		}
	}
}

// A function with a driver of its own may have any program, for the tenants that may use it;
// the shipped drivers have theirs.
func TestProgramsByDriver(t *testing.T) {
	const head = `{"functions": [{"address": "0000:01:00.0", "name": "ours"}, {"address": "0000:02:00.0", "name": "own", "driver": "/opt/driver"}], "tenants": [{"name": "a", "allowedUids": "any", `
	for in, ok := range map[string]bool{
		`"programs": ["nosuch"]}]}`:                                         true,
		`"programs": ["nosuch"], "devices": ["own"]}]}`:                     true,
		`"programs": ["nosuch"], "devices": ["ours"]}]}`:                    false,
		`"programs": ["edu.factorial", "fill_u32"], "devices": ["ours"]}]}`: true,
	} {
		_, err := ParsePolicy([]byte(head + in))
		require.Equal(t, ok, err == nil, "%s: %v", in, err)
	}
}

// Functions may hold no more than the host's memory, and only functions with huge pages may
// hold memory that is reserved for these.
func TestMemoryOfTheHost(t *testing.T) {
	h, err := parseMemory([]byte("MemTotal:        8388608 kB\nMemFree: 1 kB\nHugePages_Total:    1024\nHugepagesize:       2048 kB\nHugetlb:         2097152 kB\n"))
	require.NoError(t, err)
	require.Equal(t, memoryOfHost{bytes: 8 << 30, huge: 2 << 30}, h)
	_, err = parseMemory([]byte("MemFree: 3 kB\n"))
	require.ErrorContains(t, err, "no MemTotal")

	function := func(gib uint64, huge bool) FunctionPolicy {
		return FunctionPolicy{MemoryBytes: gib << 30, HugePages: huge}
	}
	require.NoError(t, fits([]FunctionPolicy{function(4, false), function(4, true)}, h))
	require.NoError(t, fits([]FunctionPolicy{function(6, false), function(2, true)}, h))
	require.ErrorContains(t, fits([]FunctionPolicy{function(5, true), function(4, true)}, h), "9216 MiB of memory together, and this host has 8192 MiB")
	require.ErrorContains(t, fits([]FunctionPolicy{function(7, false)}, h), "this host has 6144 MiB besides its huge pages")
	require.ErrorContains(t, fits([]FunctionPolicy{{MemoryBytes: 1 << 63}, {MemoryBytes: 1 << 63}}, h), "together")

	real, err := readMemory()
	require.NoError(t, err)
	require.Positive(t, real.bytes)
	require.LessOrEqual(t, defaultMemory(), min(1<<30, real.bytes))
}
