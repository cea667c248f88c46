package gate

import (
	"context"

	"capgpu/gate/encode"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// manager implements GpuDeviceManager.
type manager struct{ g *gate }

func (m *manager) ListDevices(ctx context.Context, call schema.GpuDeviceManager_listDevices) error {
	devices, err := m.g.service.Devices(ctx)
	if err != nil {
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	list, err := res.NewDevices(int32(len(devices)))
	if err != nil {
		return err
	}

	for i, d := range devices {
		if err := encode.Device(list.At(i), d); err != nil {
			return err
		}
	}

	return nil
}

func (m *manager) OpenDevice(ctx context.Context, call schema.GpuDeviceManager_openDevice) error {
	rpcguard.Go(ctx, call.Call) // a slow driver delays no other call
	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	crashpoint.Here("gate.open.asked")
	opened, err := m.g.service.Open(ctx, call.Args().CapabilityIndex())
	if err != nil {
		return err
	}

	crashpoint.Here("gate.open.opened")
	s, err := m.g.newSession(ctx, opened, nil)
	if err != nil {
		return err
	}

	return res.SetSession(schema.GpuSession(s.capability()))
}

func (m *manager) Lifecycle(ctx context.Context, call schema.GpuDeviceManager_lifecycle) error {
	index := call.Args().CapabilityIndex()
	devices, err := m.g.service.Devices(ctx)
	if err != nil {
		return err
	}

	for _, d := range devices {
		if d.Index != index {
			continue
		}
		res, err := call.AllocResults()
		if err != nil {
			return err
		}
		l := &lifecycle{g: m.g, index: index}
		return res.SetLifecycle(schema.Lifecycle(rpcguard.Export(rpcguard.Spec{
			Name: "Lifecycle", Gate: m.g.root, Impl: l, Log: m.g.log,
			Methods: schema.Lifecycle_Methods(nil, l),
		})))
	}

	return gpuerr.New(gpuerr.NoDevice, "capabilityIndex: there is no device %d", index)
}

// lifecycle implements Lifecycle for one device.
type lifecycle struct {
	g     *gate
	index uint32
}

func (l *lifecycle) Next(ctx context.Context, call schema.Lifecycle_next) error {
	rpcguard.Go(ctx, call.Call)
	select {
	case l.g.waits <- struct{}{}:
		defer func() { <-l.g.waits }()
	default:
		return gpuerr.New(gpuerr.Busy, "%d calls of Lifecycle.next are waiting already", maxLifecycleWaits)
	}

	next := l.g.service.NextStateFor
	if call.Args().Steps() {
		next = l.g.service.NextStepFor
	}

	st, err := next(ctx, l.index, call.Args().Epoch(), encode.Duration(call.Args().TimeoutNanos()))
	if err != nil {
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	res.SetEpoch(st.Epoch)
	res.SetState(schema.DeviceState(st.State))
	res.SetChanged(st.Changed)
	res.SetRecovery(schema.RecoveryStep(st.Recovery))
	res.SetLastRecovery(schema.RecoveryStep(st.LastRecovery))
	res.SetIncidents(st.Incidents)
	res.SetSuspended(st.Suspended)
	return res.SetCause(st.Cause)
}
