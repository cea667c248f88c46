// Package rehearsal is what a standby does while it waits for its grants: a small life on
// a function in its own memory. It is for drivers whose backend runs on such a function.
package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/control"
	"capgpu/ddf"
	"capgpu/ddf/fake"
	"capgpu/driver/session"
	"capgpu/gpu"
	"capgpu/gpu/backend"
	"capgpu/internal/shm"
	"capgpu/ledger"
)

// memoryBytes is the DMA memory of the function that a rehearsal is on.
const memoryBytes = 8 << 20

// timeout is long for what a rehearsal does.
const timeout = 10 * time.Second

// Run lives a small life on a function in this process's own memory: a device is
// opened, a client has a session with a queue, opens every program that is built in,
// launches nothing but a fill, and all is closed. What only the first session of a
// process meets (code and stacks that are not in memory, programs that are not read
// yet) the first session of the real device does not meet then. Nothing of it is left
// but that: the function, its memory and its device are others than those that are
// granted later.
//
// It ends early when ctx does. An error is no harm. open makes the backend.
func Run(ctx context.Context, open func(ddf.GrantSet) (backend.Backend, error)) (err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	function, err := fake.New(fake.Options{Info: ddf.DeviceInfo{Name: "rehearsal", Epoch: 1, Fake: true}, LimitBytes: memoryBytes})
	if err != nil {
		return err
	}
	defer function.Close()
	set := function.Grants()
	b, err := open(set)
	if err != nil {
		return err
	}
	limits := ledger.NoLimits()
	limits[ledger.DeviceMemory] = memoryBytes
	device, err := gpu.New(gpu.Config{Info: set.Device, Backend: b, DMA: set.DMA, Audit: set.Audit, Limits: limits})
	if err != nil {
		return fmt.Errorf("start the core: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		err = errors.Join(err, device.Close(ctx))
	}()
	return rehearse(ctx, device, b.Programs())
}

// rehearse is a client's and the driver's part of one session.
func rehearse(ctx context.Context, device *gpu.Device, programs []string) error {
	ours, theirs, err := shm.Socketpair()
	if err != nil {
		return err
	}
	core, err := device.OpenSession(gpu.Attach{ID: 1, Tenant: "rehearsal", TenantLimits: ledger.NoLimits(), Limits: ledger.NoLimits(), Facet: gpu.FacetFull, Weight: 1})
	if err != nil {
		return errors.Join(err, unix.Close(ours), unix.Close(theirs))
	}
	conn, err := control.NewConn(theirs, control.ConnOptions{})
	if err != nil {
		return errors.Join(err, unix.Close(ours), core.Close())
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = session.Serve(ctx, conn, core) }) // it ends with the client's side
	defer serving.Wait()
	s, err := client.NewSession(ours, 1)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	if err != nil {
		return err
	}
	buffer, err := s.CreateBuffer(ctx, 4096, client.Storage)
	if err != nil {
		return err
	}
	if _, err := q.Submit(&client.Fill{Buffer: buffer, Bytes: 4096}); err != nil {
		return err
	}
	done := make([]client.Completion, 1)
	if _, err := q.Completions(ctx, done); err != nil {
		return err
	}
	for _, name := range programs {
		p, err := s.OpenProgram(ctx, name)
		if err != nil {
			return err
		}
		if err := p.Close(ctx); err != nil {
			return err
		}
	}
	return nil
}
