package manager_test

import (
	"context"
	"net"
	"testing"

	"capnproto.org/go/capnp/v3/rpc"
	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/ledger"
	"capgpu/manager"
	"capgpu/schema"
)

// dialCapnp connects a Cap'n Proto client; both end with the test.
func (w *world) dialCapnp(tenant string) schema.GpuDeviceManager {
	w.t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: w.CapnpSocketPath(tenant), Net: "unix"})
	require.NoError(w.t, err)
	conn := rpc.NewConn(rpcguard.NewClientTransport(c), nil)
	w.t.Cleanup(func() { conn.Close() })
	m := schema.GpuDeviceManager(conn.Bootstrap(within(w.t)))
	w.t.Cleanup(m.Release)
	return m
}

// openCapnp opens device 0; the session is released with the test.
func openCapnp(t *testing.T, m schema.GpuDeviceManager) (schema.GpuSession, error) {
	f, release := m.OpenDevice(within(t), nil)
	t.Cleanup(release)
	res, err := f.Struct()
	if err != nil {
		return schema.GpuSession{}, rpcguard.FromException(err)
	}
	s := res.Session().AddRef()
	t.Cleanup(s.Release)
	return s, nil
}

func describe(t *testing.T, s schema.GpuSession) error {
	f, release := s.Describe(within(t), nil)
	defer release()
	_, err := f.Struct()
	return rpcguard.FromException(err)
}

// A gate outlives drivers: its sessions end with their driver, and the next driver serves it
// again.
func TestCapnpClientAcrossDrivers(t *testing.T) {
	w := start(t, nil)
	_, pid := w.driver(1)
	m := w.dialCapnp("default")
	s, err := openCapnp(t, m)
	require.NoError(t, err)
	require.NoError(t, describe(t, s))
	require.EqualValues(t, 1, w.held(ledger.Connections))

	kill(t, pid)
	w.driver(2)
	require.ErrorIs(t, describe(t, s), gpuerr.Disconnected)
	s, err = openCapnp(t, m)
	require.NoError(t, err)
	require.NoError(t, describe(t, s))
}

func TestCapnpConnectionLimit(t *testing.T) {
	w := start(t, func(c *manager.Config) { c.Policy.Tenant("limited").MaxConnections = 1 })
	w.driver(1)
	first := w.dialCapnp("limited")
	require.NoError(t, first.Resolve(within(t)))
	second := w.dialCapnp("limited")
	f, release := second.ListDevices(within(t), nil)
	defer release()
	_, err := f.Struct()
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}
