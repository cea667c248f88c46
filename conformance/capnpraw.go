package conformance

import (
	"context"
	"errors"
	"net"
	"sync"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"

	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// RawCapnp sends bytes on a tenant's Cap'n Proto socket, and waits until the
// service closes it.
func RawCapnp(ctx context.Context, socket string, text []byte) error {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer nc.Close()
	return awaitHangUp(ctx, nc, text)
}

// valve passes the service's answers on to a client, or holds them back.
type valve struct {
	client, service net.Conn
	mu              sync.Mutex
	wake            sync.Cond // L is mu
	// +checklocks:mu
	shut bool
	// +checklocks:mu
	sent uint64
}

// runUp passes on the client's bytes.
func (v *valve) runUp() {
	buf := make([]byte, 32<<10)
	for {
		n, err := v.client.Read(buf)
		if err == nil {
			_, err = v.service.Write(buf[:n])
		}
		if err != nil {
			v.service.Close()
			return
		}
		v.mu.Lock()
		v.sent += uint64(n)
		v.mu.Unlock()
	}
}

// runDown passes on the service's answers while the valve is open. While it is
// shut, it reads nothing from the service.
func (v *valve) runDown() {
	buf := make([]byte, 32<<10)
	for {
		v.mu.Lock()
		for v.shut {
			v.wake.Wait()
		}
		v.mu.Unlock()
		n, err := v.service.Read(buf)
		if err == nil {
			_, err = v.client.Write(buf[:n])
		}
		if err != nil {
			v.client.Close()
			return
		}
	}
}

func (v *valve) set(shut bool) {
	v.mu.Lock()
	v.shut = shut
	v.wake.Broadcast()
	v.mu.Unlock()
}

func (v *valve) passed() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sent
}

// FloodCapnp is Stack.Flood over Cap'n Proto.
func FloodCapnp(ctx context.Context, socket string, n int, paused func()) (answered, refused int, err error) {
	var d net.Dialer
	service, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, 0, err
	}

	near, far, err := pair()
	if err != nil {
		service.Close()
		return 0, 0, err
	}

	v := &valve{client: far, service: service}
	v.wake.L = &v.mu
	var passing sync.WaitGroup
	passing.Go(v.runUp)
	passing.Go(v.runDown)
	conn := rpc.NewConn(rpcguard.NewClientTransport(near.(*net.UnixConn)), nil)
	defer passing.Wait()
	defer service.Close()
	defer v.set(false)
	defer conn.Close()

	manager := schema.GpuDeviceManager(conn.Bootstrap(ctx))
	defer manager.Release()
	opened, release := manager.OpenDevice(ctx, nil)
	defer release()

	r, err := opened.Struct()
	if err != nil {
		return 0, 0, rpcguard.FromException(err)
	}

	session := r.Session()
	v.set(true)
	type asked struct {
		f       schema.GpuMemorySession_describe_Results_Future
		release capnp.ReleaseFunc
	}

	questions := make(chan asked, n)
	go func() {
		defer close(questions)
		for range n {
			f, release := session.Describe(ctx, nil)
			questions <- asked{f, release}
		}
	}()

	awaitQuiet(ctx, v.passed)
	paused()
	v.set(false)
	for q := range questions {
		_, qerr := q.f.Struct()
		q.release()
		qerr = rpcguard.FromException(qerr)
		switch {
		case qerr == nil:
			answered++
		case errors.Is(qerr, gpuerr.Busy), errors.Is(qerr, gpuerr.QueueFull), errors.Is(qerr, gpuerr.Quota):
			refused++
		default:
			err = qerr
		}
	}

	return answered, refused, err
}
