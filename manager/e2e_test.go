package manager_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/manager"
	"capgpu/outcome"
)

// open opens a session on the device once it is ready.
func (w *world) open(c *client.Conn) *client.Session {
	w.t.Helper()
	w.driver(1)
	s, err := c.Open(within(w.t), 0)
	require.NoError(w.t, err)
	return s
}

// addVectors runs c = a + b on a session and checks every element. It returns the error of
// the first call that failed.
func addVectors(ctx context.Context, s *client.Session) error {
	const n = 1024
	var buffers [3]*client.Buffer
	for i := range buffers {
		b, err := s.CreateBuffer(ctx, 4*n, client.Storage)
		if err != nil {
			return err
		}
		defer b.Close(ctx)
		buffers[i] = b
	}
	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	if err != nil {
		return err
	}
	defer q.Close(ctx)
	f, err := s.CreateFence(ctx, 0)
	if err != nil {
		return err
	}
	defer f.Close(ctx)
	for i, pattern := range []uint32{0x3f800000, 0x40000000} { // 1.0 and 2.0
		if _, err := q.PushFill(&client.Fill{Buffer: buffers[i], Bytes: 4 * n, Pattern: pattern}); err != nil {
			return err
		}
	}
	p, err := s.OpenProgram(ctx, "vecadd_f32")
	if err != nil {
		return err
	}
	defer p.Close(ctx)
	if _, err := q.PushLaunch(&client.Launch{Program: p, Bindings: []client.Binding{{Buffer: buffers[0]}, {Buffer: buffers[1]}, {Buffer: buffers[2]}}}); err != nil {
		return err
	}
	if _, err := q.PushSignal(f, 1); err != nil {
		return err
	}
	if err := q.Flush(); err != nil {
		return err
	}
	o, err := f.Wait(ctx, 1)
	if err != nil {
		return err
	}
	if o.Kind != outcome.OK {
		return gpuerr.New(gpuerr.Disconnected, "the work ended %v", o.Kind)
	}
	sum := make([]byte, 4*n)
	if _, err := buffers[2].ReadAt(sum, 0); err != nil {
		return err
	}
	for i := 0; i < len(sum); i += 4 {
		if binary.LittleEndian.Uint32(sum[i:]) != 0x40400000 { // 3.0
			select {
			case <-s.Done(): // its driver died after the work, and the memory is scrubbed
				return s.Err()
			case <-time.After(patience / 4):
				return gpuerr.New(gpuerr.Internal, "element %d is wrong", i/4)
			}
		}
	}
	return nil
}

func TestEndToEnd(t *testing.T) {
	w := start(t, nil)
	c := w.dial("default")
	require.Equal(t, "default", c.Tenant())
	s := w.open(c)
	require.EqualValues(t, 1, s.Epoch())
	require.NoError(t, addVectors(within(t), s))

	devices, err := c.Devices(within(t))
	require.NoError(t, err)
	require.Len(t, devices, 1)
	require.Equal(t, client.Ready, devices[0].State)
	require.Equal(t, "mock", devices[0].Backend)
	require.Equal(t, client.FacetFull, devices[0].Facet)
	require.NotZero(t, w.held(ledger.DeviceMemory)+w.held(ledger.IRQVectors))

	status, err := c.Status(within(t), 0)
	require.NoError(t, err)
	require.True(t, json.Valid(status))
	_, err = c.Open(within(t), 7)
	require.ErrorIs(t, err, gpuerr.NoDevice)

	require.NoError(t, s.Close(within(t)))
	require.NoError(t, w.Check())
	// The driver's records come a moment later.
	for _, kind := range []string{"manager.start", "driver.start", "driver.ready", "session.attach", "dma.map", "mmio.grant", "interrupt.grant", "tenant.limits", "queue.create"} {
		require.Eventually(t, func() bool { return w.log.kinds()[kind] > 0 }, patience, time.Millisecond, kind)
	}
}

func TestFacetsAndQuotas(t *testing.T) {
	w := start(t, nil)
	memory := w.open(w.dial("memory-only"))
	_, err := memory.OpenProgram(within(t), "vecadd_f32")
	require.ErrorIs(t, err, gpuerr.Unimplemented)
	limited := w.open(w.dial("limited"))
	_, err = limited.CreateBuffer(within(t), 2<<20, client.Storage)
	require.ErrorIs(t, err, gpuerr.Quota)

	// One tenant at its limit does not affect another.
	require.NoError(t, addVectors(within(t), w.open(w.dial("default"))))

	l := ledger.NoLimits()
	l[ledger.DeviceMemory] = 4 << 20
	w.setLimits("limited", l)
	b, err := limited.CreateBuffer(within(t), 2<<20, client.Storage)
	require.NoError(t, err, "limits change while a session lives")
	require.NoError(t, b.Close(within(t)))
}

// The budget of a tenant is known before its first session, in each epoch.
func TestBudgetBeforeTheFirstSession(t *testing.T) {
	w := start(t, nil)
	c := w.dial("limited")
	deviceMemory := func() uint64 {
		t.Helper()
		text, err := c.Status(within(t), 0)
		require.NoError(t, err)
		var st struct {
			Tenants []struct {
				Tenant string
				Budget []struct {
					Class string
					Limit uint64
				}
			}
		}
		require.NoError(t, json.Unmarshal(text, &st))
		require.Len(t, st.Tenants, 1)
		require.Equal(t, "limited", st.Tenants[0].Tenant)
		for _, b := range st.Tenants[0].Budget {
			if b.Class == "deviceMemory" {
				return b.Limit
			}
		}
		t.Fatal("no limit of device memory")
		return 0
	}
	_, pid := w.driver(1)
	require.EqualValues(t, 1<<20, deviceMemory())
	l := w.policyLimits("limited")
	l[ledger.DeviceMemory] = 3 << 20
	w.setLimits("limited", l)
	require.EqualValues(t, 3<<20, deviceMemory())
	kill(t, pid)
	w.driver(2)
	require.EqualValues(t, 3<<20, deviceMemory(), "the next driver has the newest limits")
	require.Equal(t, []string{"default", "memory-only", "limited"}, w.Tenants())
}

func (w *world) policyLimits(tenant string) ledger.Limits {
	return manager.DevPolicy().Tenant(tenant).Limits
}

// While the audit log cannot be written, no new grants are given; existing ones continue.
func TestNoSessionWithoutRecord(t *testing.T) {
	w := start(t, nil)
	c := w.dial("default")
	s := w.open(c)
	w.log.setRefuse(gpuerr.New(gpuerr.Quota, "the disk is full"))
	_, err := c.Open(within(t), 0)
	require.ErrorIs(t, err, gpuerr.IO)
	require.ErrorContains(t, err, "the disk is full")
	_, err = s.Describe(within(t))
	require.NoError(t, err)
	w.log.setRefuse(nil)
	require.NoError(t, addVectors(within(t), w.open(c)))
}

func TestConnectionLimit(t *testing.T) {
	w := start(t, func(c *manager.Config) { c.Policy.Tenant("limited").MaxConnections = 2 })
	first := w.dial("limited")
	w.dial("limited")
	_, err := client.Dial(within(t), w.SocketPath("limited"))
	var refusal *gpuerr.Error
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, gpuerr.Quota, refusal.Code)
	require.Equal(t, "connections", refusal.Resource)
	w.dial("default") // another tenant is not affected

	require.NoError(t, first.Close())
	require.Eventually(t, func() bool {
		c, err := client.Dial(within(t), w.SocketPath("limited"))
		if err != nil {
			return false
		}
		return c.Close() == nil
	}, patience, time.Millisecond, "a closed connection gives its charge back")
}

func TestUserIsRefused(t *testing.T) {
	w := start(t, func(c *manager.Config) { c.Policy.Tenant("limited").AllowedUIDs = []uint32{65533} })
	_, err := client.Dial(within(t), w.SocketPath("limited"))
	require.ErrorIs(t, err, gpuerr.Denied)
}

func TestNextState(t *testing.T) {
	w := start(t, nil)
	c := w.dial("default")
	_, pid := w.driver(1)
	// Ready in epoch 1 is no news to a client that knows it.
	st, err := c.NextStateFor(within(t), 0, 1, 10*time.Millisecond)
	require.NoError(t, err)
	require.False(t, st.Changed)

	next := make(chan client.State, 8)
	go func() {
		defer close(next)
		for epoch := uint64(1); ; {
			st, err := c.NextState(context.Background(), 0, epoch)
			if err != nil {
				return
			}
			next <- st
			if st.State == client.Ready {
				return
			}
			epoch = st.Epoch
		}
	}()
	kill(t, pid)
	st = <-next
	require.Equal(t, client.Recovering, st.State)
	require.EqualValues(t, 1, st.Epoch)
	require.Contains(t, st.Cause, "killed")
	st = <-next
	require.Equal(t, client.Ready, st.State, "recovering is told once, then the wait goes on")
	require.EqualValues(t, 2, st.Epoch)
	require.True(t, st.Changed)
}

// The policy's sampling of launches reaches the driver.
func TestLaunchesAreRecordedByPolicy(t *testing.T) {
	for every, want := range map[uint64]int{0: 0, 1: 1} {
		w := start(t, func(c *manager.Config) { c.Policy.Audit.Launches = every })
		w.driver(1)
		s := w.open(w.dial("default"))
		require.NoError(t, addVectors(within(t), s)) // one launch, two fills
		require.NoError(t, s.Close(within(t)))
		require.Eventually(t, func() bool { return w.log.kinds()["session.close"] == 1 }, patience, time.Millisecond)
		require.Equal(t, want, w.log.kinds()["launch"])
		w.stop()
	}
}
