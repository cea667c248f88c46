package manager_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/manager"
)

// An operator learns which changes a file would make, and none is made. A file is refused
// with the same error as at a start.
func TestPlan(t *testing.T) {
	w := start(t, func(c *manager.Config) { c.Policy.Device.Respawn = manager.DevPolicy().Device.Respawn })
	s := w.open(w.dial("limited"))
	a := w.admin()
	uid := os.Getuid()
	text := fmt.Sprintf(`{"tenants": [{"name": "default", "allowedUids": [%d], "weight": 5}, {"name": "new", "allowedUids": [%d]}]}`, uid, uid)
	answer, err := a.Plan(within(t), []byte(text+strings.Repeat(" ", 10_000)))
	require.NoError(t, err)
	require.Contains(t, string(answer), `{"tenant":"new","change":"added","fields":[],"sessions":0,"connections":0}`)
	require.Contains(t, string(answer), `{"tenant":"limited","change":"removed","fields":[],"sessions":1,"connections":1}`)
	require.Regexp(t, `"tenant":"default","change":"changed","fields":\[.*"weight".*\]`, string(answer))
	require.NoError(t, s.Err())
	require.Equal(t, []string{"default", "memory-only", "limited"}, w.Tenants())
	require.Zero(t, w.log.kinds()["policy.reload"])

	_, err = a.Plan(within(t), []byte(`{"tenants": [`))
	require.ErrorIs(t, err, gpuerr.Invalid)
	require.ErrorContains(t, err, "line 1, column 14: the file ends")
	_, err = a.Plan(within(t), []byte(`{"device": {"memory": "1024TiB"}, "tenants": [{"name": "a", "allowedUids": "any"}]}`))
	require.ErrorIs(t, err, gpuerr.Invalid)
	require.ErrorContains(t, err, "this host has")
	_, err = a.Plan(within(t), []byte(strings.Repeat(" ", 2<<20)))
	require.ErrorIs(t, err, gpuerr.Invalid)
	require.ErrorContains(t, err, "longer than 1048576 bytes")
	_, err = a.Plan(within(t), []byte(text))
	require.NoError(t, err, "what was refused is not in the way")
}
