package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/manager"
)

// scripted answers a reload.
type scripted struct {
	asked   []*manager.Policy
	changes manager.Changes
	err     error
}

func (m *scripted) Reload(_ context.Context, p *manager.Policy) (manager.Changes, error) {
	m.asked = append(m.asked, p)
	return m.changes, m.err
}

// A reload reports everything that it does, and everything that it does not do.
func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.json")
	const good = `{"tenants": [{"name": "a", "allowedUids": "any"}]}`
	for _, c := range []struct {
		name, policy string
		m            scripted
		said         []string
		asked        int
	}{
		{"nothing", good, scripted{}, []string{"capgpu: policy reloaded"}, 1},
		{"changes", good, scripted{changes: manager.Changes{
			Tenants: []manager.TenantChange{
				{Tenant: "new", Change: "added"}, {Tenant: "a", Change: "changed", Fields: []string{"facet", "weight"}, Sessions: 1},
				{Tenant: "b", Change: "changed", Fields: []string{"limits"}}, {Tenant: "old", Change: "removed", Sessions: 3, Connections: 2},
			},
			Restart: []string{"device", "audit"}, Failed: []string{"device mock0: it is odd"},
		}}, []string{
			"capgpu: tenant new added", "capgpu: tenant a changed (facet, weight): 1 session and 0 connections ended", "capgpu: tenant b changed (limits)",
			"capgpu: tenant old removed: 3 sessions and 2 connections ended", "capgpu: needs a restart, and stays as it was: device, audit",
			"capgpu: not in force: device mock0: it is odd", "capgpu: policy reloaded",
		}, 1},
		{"refused", good, scripted{err: gpuerr.New(gpuerr.IO, "the audit log cannot be written")},
			[]string{"capgpu: the policy was not reloaded: E_IO: the audit log cannot be written"}, 1},
		{"mistake", `{"tenants": [`, scripted{},
			[]string{"capgpu: the policy was not reloaded: policy " + path + ": line 1, column 14: the file ends in the middle of a value; close what is open"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, []byte(c.policy), 0o600))
			var said []string
			reload(t.Context(), &options{policyPath: path}, &c.m, slog.New(slog.DiscardHandler), func(line string) { said = append(said, line) })
			require.Equal(t, c.said, said)
			require.Len(t, c.m.asked, c.asked)
		})
	}
}

// A slow reload does not delay a signal to stop; SIGHUPs that come meanwhile cause
// one more reload.
func TestSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, begun, over := make(chan os.Signal, 4), make(chan struct{}, 4), make(chan struct{})
		finish := make(chan struct{})
		go func() {
			defer close(over)
			attendSignals(signals, func(ctx context.Context) {
				begun <- struct{}{}
				select {
				case <-finish:
				case <-ctx.Done():
				}
			})
		}()

		signals <- syscall.SIGHUP
		<-begun
		for range 3 {
			signals <- syscall.SIGHUP
		}

		synctest.Wait()
		finish <- struct{}{}
		<-begun
		synctest.Wait()
		require.Empty(t, begun)
		signals <- syscall.SIGHUP
		synctest.Wait()
		signals <- syscall.SIGTERM
		<-over
		require.Empty(t, begun, "what waits is not begun any more")
	})
}
