package manager

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"capgpu/control"
	"capgpu/gpuerr"
)

// maxWaiters is how many NextState of one socket may wait at once; the rest of
// the 64 requests stays for those that are answered at once.
const maxWaiters = 32

// broker answers one tenant socket.
type broker struct {
	tenant  *tenantServer
	device  *device
	told    told
	waiters atomic.Int32
}

// handle answers one broker message. Of what a tenant can name there is only a
// device index; everything else is the policy's.
func (b *broker) handle(ctx context.Context, m *control.Message) *control.Message {
	m.CloseFDs() // no broker message has any
	body, fd, err := b.answer(ctx, m)
	if err != nil {
		return control.ErrorReply(m, err)
	}
	if fd >= 0 {
		return control.NewReply(m, body, fd)
	}
	return control.NewReply(m, body)
}

// answer returns the body of the reply, and a descriptor or -1.
func (b *broker) answer(ctx context.Context, m *control.Message) (body []byte, fd int, err error) {
	switch m.Type {
	case control.TypeHello:
		req, err := control.ParseHelloRequest(m.Body)
		if err != nil {
			return nil, -1, err
		}
		if req.Version != control.HelloVersion {
			return nil, -1, gpuerr.New(gpuerr.Unimplemented, "version: %d; this service speaks %d, say Hello with that", req.Version, control.HelloVersion)
		}
		return control.HelloReply{Version: control.HelloVersion, Tenant: b.tenant.policy().Name}.AppendTo(nil), -1, nil
	case control.TypeListDevices:
		devices := []control.DeviceInfo{b.device.describe(b.tenant.policy())}
		return control.ListDevicesReply{Devices: devices}.AppendTo(nil), -1, nil
	case control.TypeOpenDevice:
		req, err := control.ParseOpenDeviceRequest(m.Body)
		if err != nil {
			return nil, -1, err
		}
		leave, err := b.ask(ctx, req.Index)
		if err != nil {
			return nil, -1, err
		}
		defer leave()
		epoch, fd, err := b.device.attach(ctx, b.tenant.policy())
		return control.OpenDeviceReply{Epoch: epoch}.AppendTo(nil), fd, err
	case control.TypeNextState:
		body, err := b.nextState(ctx, m.Body)
		return body, -1, err
	case control.TypeStatus:
		req, err := control.ParseStatusRequest(m.Body)
		if err != nil {
			return nil, -1, err
		}
		leave, err := b.ask(ctx, req.Index)
		if err != nil {
			return nil, -1, err
		}
		defer leave()
		body, err := b.device.status(ctx, b.tenant.policy().Name)
		return body, -1, err
	}
	return nil, -1, gpuerr.New(gpuerr.Unimplemented, "%v is no message of a tenant socket", m.Type)
}

// ask waits for this tenant's turn to have the driver of a device asked.
func (b *broker) ask(ctx context.Context, index uint32) (leave func(), err error) {
	if err := checkIndex(index); err != nil {
		return nil, err
	}
	if err := b.tenant.asking.enter(ctx); err != nil {
		return nil, err
	}
	if err := b.device.asking.enter(ctx); err != nil {
		b.tenant.asking.leave()
		return nil, err
	}
	return func() {
		b.device.asking.leave()
		b.tenant.asking.leave()
	}, nil
}

func checkIndex(index uint32) error {
	if index != deviceIndex {
		return gpuerr.New(gpuerr.NoDevice, "index: there is no device %d; ListDevices tells which there are", index)
	}
	return nil
}

func (b *broker) nextState(ctx context.Context, body []byte) ([]byte, error) {
	req, err := control.ParseNextStateRequest(body)
	if err == nil {
		err = checkIndex(req.Index)
	}
	if err != nil {
		return nil, err
	}
	defer b.waiters.Add(-1)
	if b.waiters.Add(1) > maxWaiters {
		return nil, gpuerr.New(gpuerr.Busy, "%d NextState requests of this socket wait already", maxWaiters)
	}
	timeout := time.Duration(min(req.TimeoutNanos, math.MaxInt64))
	reply, err := b.device.board.next(ctx, &b.told, req.Epoch, timeout)
	if err != nil {
		return nil, err
	}
	return reply.AppendTo(nil), nil
}
