package rpcguard

import (
	"context"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"github.com/stretchr/testify/require"

	"capgpu/internal/rpcguard/rpcguardtest"
	"capgpu/schema"
)

// holder hands out two capabilities: one of its own, and one that lives on.
type holder struct {
	schema.GpuDeviceManager_Server
	made, kept func() capnp.Client
}

func (h *holder) OpenDevice(_ context.Context, call schema.GpuDeviceManager_openDevice) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	c := h.made
	if call.Args().CapabilityIndex() == 1 {
		c = h.kept
	}
	return res.SetSession(schema.GpuSession(c()))
}

// Serve returns after the Shutdown of every object that only the peer held, whether it died
// with the connection or was released before, and does not wait for objects that others hold.
func TestServeWaitsForShutdowns(t *testing.T) {
	for name, releaseFirst := range map[string]bool{"with the connection": false, "released before": true} {
		t.Run(name, func(t *testing.T) {
			shared := Export(Spec{Name: "shared"})
			defer shared.Release()
			running, finish := make(chan struct{}), make(chan struct{})
			h := &holder{kept: shared.AddRef}
			h.made = func() capnp.Client {
				return Export(Spec{Name: "slow", Shutdown: func() { close(running); <-finish }})
			}
			bootstrapEnded := false
			bootstrap := Export(Spec{
				Name: "bootstrap", Methods: schema.GpuDeviceManager_Methods(nil, h),
				Shutdown: func() { bootstrapEnded = true },
			})
			server, peer := socketpair(t)
			ended := make(chan error, 1)
			go func() { ended <- Serve(context.Background(), server, bootstrap, Limits{}) }()
			p := newRawPeer(t, peer)
			p.send(rpcguardtest.Bootstrap(0))
			manager := p.capOf(0)
			openCall := callSpec{id: 1, iface: managerInterface, method: 1, export: manager, arg: 1}
			p.send(callBytes(openCall))
			p.capOf(1)
			openCall.id, openCall.arg = 2, 0
			p.send(callBytes(openCall))
			slow := p.capOf(2)
			if releaseFirst {
				p.send(rpcguardtest.Release(slow, 1))
				<-running
			}
			require.NoError(t, peer.Close())
			<-running
			select {
			case err := <-ended:
				t.Fatalf("Serve returned (%v) before a Shutdown", err)
			case <-time.After(50 * time.Millisecond):
			}
			close(finish)
			select {
			case err := <-ended:
				require.NoError(t, err)
			case <-time.After(patience):
				t.Fatal("Serve does not return")
			}
			require.True(t, bootstrapEnded)
			require.True(t, shared.IsValid())
		})
	}
}

// A vat does not remember objects that are gone.
func TestHeldIsPruned(t *testing.T) {
	bootstrap := Export(Spec{Name: "bootstrap"})
	defer bootstrap.Release()
	v := newVat(nil, bootstrap, DefaultLimits())
	defer v.cancel(nil)
	for range 10 * minPruneAt {
		c := Export(Spec{Name: "short-lived"})
		o := objectOf(c)
		v.hold(o)
		c.Release()
		<-o.ended
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	require.LessOrEqual(t, len(v.held), minPruneAt)
	require.Contains(t, v.held, objectOf(bootstrap))
}
