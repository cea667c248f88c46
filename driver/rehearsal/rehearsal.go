// Package rehearsal is the work of a standby driver while it waits for its grants:
// it runs one short session on a function in its own memory. It serves drivers with
// a backend that runs on such a function.
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

// memoryBytes is the DMA memory of the rehearsal's function.
const memoryBytes = 8 << 20

// timeout is far above the time that a rehearsal takes.
const timeout = 10 * time.Second

// Run rehearses one session on a function in this process's own memory. It opens a
// device, opens a session with a queue, opens every built-in program, launches only
// a fill, and closes everything. The costs of a process's first session (code and
// stacks that are not in memory, programs that were not read yet) are then paid
// before the real device's first session. Nothing else remains: the function, its
// memory and its device are separate from the granted ones.
//
// It ends early when ctx does. An error is harmless. open makes the backend.
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

// rehearse plays both the client's and the driver's part of one session.
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
	serving.Go(func() { _ = session.Serve(ctx, conn, core) }) // ends with the client's side
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
