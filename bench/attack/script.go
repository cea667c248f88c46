package attack

import (
	"context"
	"net"
	"time"

	"capnproto.org/go/capnp/v3/rpc"

	"capgpu/bench/dataplane/wire"
	"capgpu/client"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// sessionSteps is the number of steps of killedInSession.
const sessionSteps = 22

// killedInSession holds a whole conversation, in which it is killed after some
// step.
func killedInSession(ctx context.Context, a *attacker) error {
	conn, err := client.Dial(ctx, a.socket)
	if err != nil {
		return err
	}

	a.reached()
	if _, err := conn.Devices(ctx); err != nil {
		return err
	}

	a.reached()
	s, err := conn.Open(ctx, 0)
	if err != nil {
		return err
	}

	a.reached()
	var buffers [3]*client.Buffer
	for i := range buffers {
		if buffers[i], err = s.CreateBuffer(ctx, 1<<(16+2*i), client.Storage); err != nil { // to 1 MiB
			return err
		}
		a.reached()
		if _, err := buffers[i].Map(); err != nil {
			return err
		}
		a.reached()
	}

	add, err := s.OpenProgram(ctx, "vecadd_f32")
	if err != nil {
		return err
	}

	a.reached()
	spin, err := s.OpenProgram(ctx, "spin")
	if err != nil {
		return err
	}

	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	if err != nil {
		return err
	}

	a.reached()
	f, err := s.CreateFence(ctx, 0)
	if err != nil {
		return err
	}

	a.reached()
	launch := &client.Launch{Program: add}
	for _, b := range buffers {
		launch.Bindings = append(launch.Bindings, client.Binding{Buffer: b, Len: 4096})
	}

	if _, err := q.PushLaunch(launch); err != nil {
		return err
	}

	a.reached() // it was not shown to the driver
	if _, err := q.PushSignal(f, 1); err != nil {
		return err
	}
	if err := q.Flush(); err != nil {
		return err
	}

	a.reached() // it runs
	if _, err := f.Wait(ctx, 1); err != nil {
		return err
	}

	a.reached()
	list, err := s.RecordList(ctx, launch, launch)
	if err != nil {
		return err
	}

	a.reached()
	if _, err := q.Submit(list.Replay(), &client.Wait{Fence: f, Value: 9}, launch); err != nil {
		return err
	}

	a.reached() // its queue waits for ever
	below, err := s.Restrict(ctx, client.Policy{Facet: client.FacetMemory})
	if err != nil {
		return err
	}

	a.reached()
	if _, err := below.CreateBuffer(ctx, 2<<20, client.Storage); err != nil {
		return err
	}

	a.reached()
	other, err := s.CreateQueue(ctx, client.QueueOptions{})
	if err != nil {
		return err
	}
	if _, err := other.Submit(&client.Launch{Program: spin, Grid: client.Dim3{X: 1, Y: 1, Z: 1}, Block: spin.Info().Block, Deadline: spinDeadline}); err != nil {
		return err
	}

	a.reached() // something runs that never ends
	if err := buffers[0].Close(ctx); err != nil {
		return err
	}

	a.reached()
	if err := below.Close(ctx); err != nil {
		return err
	}

	a.reached()
	err = s.Close(ctx)
	a.reached()
	return err
}

// spinDeadline is short, so that a spin delays others only briefly, and its own, so
// that it is no strike: a ban would end the attack.
const spinDeadline = time.Millisecond

// gateSteps is the number of steps of killedBehindGate.
const gateSteps = 6

// killedBehindGate does the same over Cap'n Proto.
func killedBehindGate(ctx context.Context, a *attacker) error {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: a.capnp, Net: "unix"})
	if err != nil {
		return err
	}

	a.reached()
	conn := rpc.NewConn(rpcguard.NewClientTransport(c), nil)
	defer conn.Close()
	m := schema.GpuDeviceManager(conn.Bootstrap(ctx))
	if err := m.Resolve(ctx); err != nil {
		return err
	}

	a.reached()
	opened, _ := m.OpenDevice(ctx, nil)
	if _, err := opened.Struct(); err != nil {
		return rpcguard.FromException(err)
	}

	a.reached()
	made, _ := opened.Session().CreateBuffer(ctx, func(p schema.GpuMemorySession_createBuffer_Params) error {
		p.SetBytes(1 << 20)
		return p.SetUsage("storage")
	})

	if _, err := made.Struct(); err != nil {
		return rpcguard.FromException(err)
	}

	a.reached()
	wrote, _ := made.Buffer().Write(ctx, func(p schema.GpuBuffer_write_Params) error { return p.SetData(make([]byte, 60<<10)) })
	a.reached() // it is in progress
	if _, err := wrote.Struct(); err != nil {
		return rpcguard.FromException(err)
	}

	a.reached()
	return nil
}

// openRaw opens a session without the client's care.
func (a *attacker) openRaw(ctx context.Context) (*wire.Session, error) {
	return wire.Open(ctx, a.socket)
}
