package gate

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/control"
	"capgpu/outcome"
	"capgpu/schema"
)

// steppingService has one device, which is suspended and in recovery, and records
// its requests.
type steppingService struct{ asked chan control.NextStateRequest }

func (s steppingService) broker(_ context.Context, m *control.Message) *control.Message {
	switch m.Type {
	case control.TypeHello:
		return control.NewReply(m, control.HelloReply{Version: control.HelloVersion, Tenant: "test"}.AppendTo(nil))

	case control.TypeListDevices:
		d := control.DeviceInfo{Index: 3, State: 1, Epoch: 5, Name: "mock0", Recovery: uint32(outcome.QueueReset), Suspended: true}
		return control.NewReply(m, control.ListDevicesReply{Devices: []control.DeviceInfo{d}}.AppendTo(nil))

	case control.TypeNextState:
		req, err := control.ParseNextStateRequest(m.Body)
		if err != nil {
			return control.ErrorReply(m, err)
		}
		s.asked <- req
		reply := control.NextStateReply{Epoch: 5, State: 1}
		if req.Steps {
			reply.Changed, reply.Recovery, reply.LastRecovery, reply.Incidents, reply.Suspended = true, uint32(outcome.QueueReset), uint32(outcome.FunctionReset), 7, true
		}
		return control.NewReply(m, reply.AppendTo(nil))
	}
	return control.NewReply(m, nil)
}

// A client that asks Lifecycle for steps gets all steps; other clients wait only
// for states.
func TestLifecycleSteps(t *testing.T) {
	s := steppingService{make(chan control.NextStateRequest, 16)}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	served := make(chan struct{})
	conn, ended := gateTo(ctx, t, s.broker, func() { close(served) })
	manager := schema.GpuDeviceManager(conn.Bootstrap(ctx))

	listed, release := manager.ListDevices(ctx, nil)
	all, err := listed.Struct()
	require.NoError(t, err)
	devices, err := all.Devices()
	require.NoError(t, err)
	require.True(t, devices.At(0).Suspended())
	require.Equal(t, schema.RecoveryStep_queueReset, devices.At(0).Recovery())
	release()

	life, releaseLife := manager.Lifecycle(ctx, func(p schema.GpuDeviceManager_lifecycle_Params) error { p.SetCapabilityIndex(3); return nil })
	l := life.Lifecycle()
	for _, steps := range []bool{true, false} {
		next, release := l.Next(ctx, func(p schema.Lifecycle_next_Params) error {
			p.SetEpoch(5)
			p.SetTimeoutNanos(1)
			p.SetSteps(steps)
			return nil
		})

		st, err := next.Struct()
		require.NoError(t, err)
		req := <-s.asked
		require.Equal(t, steps, req.Steps)
		require.EqualValues(t, 3, req.Index)
		require.EqualValues(t, 5, req.Epoch)
		require.Equal(t, steps, st.Changed())
		require.Equal(t, steps, st.Suspended())
		if steps {
			require.Equal(t, schema.RecoveryStep_queueReset, st.Recovery())
			require.Equal(t, schema.RecoveryStep_functionReset, st.LastRecovery())
			require.EqualValues(t, 7, st.Incidents())
		}

		release()
	}

	releaseLife()
	manager.Release()
	conn.Close()
	require.NoError(t, <-ended)
	<-served
}
