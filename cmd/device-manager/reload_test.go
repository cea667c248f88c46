package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/ledger"
)

// tenants is a manager with their limits.
type tenants struct {
	names  []string
	limits map[string]ledger.Limits
	refuse map[string]error
}

func (m *tenants) Tenants() []string { return append([]string(nil), m.names...) }

func (m *tenants) SetTenantLimits(_ context.Context, tenant string, l ledger.Limits) error {
	if err := m.refuse[tenant]; err != nil {
		return err
	}
	m.limits[tenant] = l
	return nil
}

// Nothing that a reload does not do goes unsaid.
func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.json")
	tenant := func(name string) string {
		return `{"name": "` + name + `", "allowedUids": "any", "limits": {"buffers": 7}}`
	}
	for _, c := range []struct {
		name, policy string
		refuse       map[string]error
		said         []string
		applied      []string
	}{
		{"all", `{"tenants": [` + tenant("a") + "," + tenant("b") + `]}`, nil,
			[]string{"capgpu: limits reloaded; everything else of the policy needs a restart"}, []string{"a", "b"}},
		{"unknown", `{"tenants": [` + tenant("a") + "," + tenant("b") + "," + tenant("new") + `]}`, nil,
			[]string{"capgpu: new tenants, not served before a restart: new",
				"capgpu: limits reloaded for 2 of 3 tenants; everything else of the policy needs a restart"}, []string{"a", "b"}},
		{"missing", `{"tenants": [` + tenant("b") + `]}`, nil,
			[]string{"capgpu: tenants that the policy has no more, served as before until a restart: a",
				"capgpu: limits reloaded for 1 of 2 tenants; everything else of the policy needs a restart"}, []string{"b"}},
		{"refused", `{"tenants": [` + tenant("a") + "," + tenant("b") + `]}`,
			map[string]error{"a": context.DeadlineExceeded, "b": gpuerr.New(gpuerr.Disconnected, "the peer is gone")},
			[]string{"capgpu: limits that only new sessions have: a (the driver did not answer), b (E_DISCONNECTED: the peer is gone)",
				"capgpu: limits reloaded for 0 of 2 tenants; everything else of the policy needs a restart"}, nil},
		{"mistake", `{"tenants": [`, nil,
			[]string{"capgpu: the policy was not reloaded: policy " + path + ": line 1, column 14: the file ends in the middle of a value; close what is open"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, []byte(c.policy), 0o600))
			m := &tenants{names: []string{"a", "b"}, limits: map[string]ledger.Limits{}, refuse: c.refuse}
			var said []string
			reload(&options{policyPath: path}, m, slog.New(slog.DiscardHandler), func(line string) { said = append(said, line) })
			require.Equal(t, c.said, said)
			require.Len(t, m.limits, len(c.applied))
			for _, name := range c.applied {
				require.EqualValues(t, 7, m.limits[name][ledger.Buffers])
			}
		})
	}
}
