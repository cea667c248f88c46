package manager

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"capgpu/control"
	"capgpu/gpuerr"
)

// maxWaiters is how many NextState and OpenReady requests of one socket may wait at once. The
// rest of the 64 requests is for those that are answered at once.
const maxWaiters = 32

// openPause is how long OpenReady waits when a ready driver has no room. Each wait is longer,
// up to longestOpenPause, because each attempt is recorded.
const (
	openPause        = 2 * time.Millisecond
	longestOpenPause = 64 * time.Millisecond
)

// broker answers one tenant socket.
type broker struct {
	conn     *connection
	tenant   *tenantServer         // of the connection
	reported map[*device]*reported // one for each device; the map does not change
	waiters  atomic.Int32
}

func newBroker(c *connection) *broker {
	b := &broker{conn: c, tenant: c.tenant, reported: map[*device]*reported{}}
	for _, d := range c.tenant.m.devices {
		b.reported[d] = &reported{}
	}
	return b
}

// device returns the device with an index. It does not exist for a tenant that the policy
// does not give it to.
func (b *broker) device(index uint32) (*device, error) {
	for _, d := range b.tenant.devices() {
		if d.index == index {
			return d, nil
		}
	}
	return nil, gpuerr.New(gpuerr.NoDevice, "index: there is no device %d; ListDevices tells which there are", index)
}

// handle answers one broker message. A tenant can name only a device index; the policy
// decides the rest.
func (b *broker) handle(ctx context.Context, m *control.Message) *control.Message {
	m.CloseFDs() // no broker message carries one
	b.conn.idle.begin()
	defer b.conn.idle.done()
	if denied := b.conn.denied.Load(); denied != nil {
		return control.ErrorReply(m, denied)
	}
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
		devices := []control.DeviceInfo{}
		for _, d := range b.tenant.devices() {
			devices = append(devices, d.describe(b.tenant.policy()))
		}
		return control.ListDevicesReply{Devices: devices}.AppendTo(nil), -1, nil
	case control.TypeOpenDevice:
		req, err := control.ParseOpenDeviceRequest(m.Body)
		if err != nil {
			return nil, -1, err
		}
		epoch, fd, err := b.open(ctx, req.Index)
		return control.OpenDeviceReply{Epoch: epoch}.AppendTo(nil), fd, err
	case control.TypeOpenReady:
		req, err := control.ParseOpenReadyRequest(m.Body)
		if err != nil {
			return nil, -1, err
		}
		epoch, fd, err := b.openReady(ctx, req)
		return control.OpenDeviceReply{Epoch: epoch}.AppendTo(nil), fd, err
	case control.TypeNextState:
		body, err := b.nextState(ctx, m.Body)
		return body, -1, err
	case control.TypeStatus:
		req, err := control.ParseStatusRequest(m.Body)
		if err != nil {
			return nil, -1, err
		}
		d, leave, err := b.ask(ctx, req.Index)
		if err != nil {
			return nil, -1, err
		}
		defer leave()
		body, err := d.status(ctx, b.tenant.policy().Name)
		return body, -1, err
	}

	return nil, -1, gpuerr.New(gpuerr.Unimplemented, "%v is no message of a tenant socket", m.Type)
}

// ask waits until this tenant may send a request to the driver of a device.
func (b *broker) ask(ctx context.Context, index uint32) (d *device, leave func(), err error) {
	if d, err = b.device(index); err != nil {
		return nil, nil, err
	}

	asking := b.tenant.asking[d]
	if err := asking.enter(ctx); err != nil {
		return nil, nil, err
	}

	if err := d.requests.turns.enter(ctx); err != nil {
		asking.leave()
		return nil, nil, err
	}

	return d, func() {
		d.requests.turns.leave()
		asking.leave()
	}, nil
}

// open opens a session and returns the client's end of its socket.
func (b *broker) open(ctx context.Context, index uint32) (epoch uint64, fd int, err error) {
	d, leave, err := b.ask(ctx, index)
	if err != nil {
		return 0, -1, err
	}
	defer leave()
	return d.attach(ctx, b.conn)
}

// openReady opens a session as soon as the device has a driver that takes sessions. While it
// waits, it occupies no request of the driver.
func (b *broker) openReady(ctx context.Context, req control.OpenReadyRequest) (epoch uint64, fd int, err error) {
	d, err := b.device(req.Index)
	if err != nil {
		return 0, -1, err
	}

	leave, err := b.wait()
	if err != nil {
		return 0, -1, err
	}

	defer leave()
	timer := time.NewTimer(nanos(req.TimeoutNanos))
	defer timer.Stop()
	for pause := openPause; ; {
		_, changed := d.board.get()
		var again <-chan time.Time // never
		if _, err = d.live(); err == nil {
			epoch, fd, err = b.open(ctx, req.Index)
			_, gone := d.live()
			if gone == nil { // for example, it has no room
				again = time.After(pause)
				pause = min(2*pause, longestOpenPause)
			}
			if errors.Is(err, gpuerr.DeviceLost) && !errors.Is(gone, gpuerr.DeviceLost) {
				// The driver has lost the device and is about to end; another one follows.
				err = gpuerr.New(gpuerr.Busy, "the driver of %s has lost its device: %v", d.name, err)
			}
		}
		if !errors.Is(err, gpuerr.Busy) {
			return epoch, fd, err
		}
		select {
		case <-changed:
			pause = openPause
		case <-again:
		case <-timer.C:
			return 0, -1, err
		case <-ctx.Done():
			return 0, -1, context.Cause(ctx)
		}
	}
}

// wait counts a waiting request until leave is called.
func (b *broker) wait() (leave func(), err error) {
	if b.waiters.Add(1) > maxWaiters {
		b.waiters.Add(-1)
		return nil, gpuerr.New(gpuerr.Busy, "%d requests of this socket wait already (NextState, OpenReady)", maxWaiters)
	}
	return func() { b.waiters.Add(-1) }, nil
}

// nanos reads a duration of the wire. One that does not fit is the longest.
func nanos(n uint64) time.Duration { return time.Duration(min(n, math.MaxInt64)) }

func (b *broker) nextState(ctx context.Context, body []byte) ([]byte, error) {
	req, err := control.ParseNextStateRequest(body)
	if err != nil {
		return nil, err
	}

	d, err := b.device(req.Index)
	if err != nil {
		return nil, err
	}

	leave, err := b.wait()
	if err != nil {
		return nil, err
	}

	defer leave()
	reply, err := d.board.next(ctx, b.reported[d], req.Epoch, req.Steps, nanos(req.TimeoutNanos))
	if err == nil {
		_, err = b.device(req.Index) // the policy may have changed since
	}
	if err != nil {
		return nil, err
	}

	return reply.AppendTo(nil), nil
}
