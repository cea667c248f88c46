package gpu

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpu/snapshot"
	"capgpu/gpuerr"
	"capgpu/ring"
)

// Adopt returns the driver's side of a piece of DMA memory that the pool has lent to an
// earlier driver of this epoch, named by its address and its generation there. It becomes
// the caller's with the commit of the upgrade.
type Adopt func(ctx context.Context, iova ddf.IOVA, generation uint64) (ddf.DMABuffer, error)

// restorer takes one image over.
type restorer struct {
	dev      *Device
	ctx      context.Context
	img      *Snapshot
	adopt    Adopt
	fds      []int // of the rings, not taken yet
	branches map[uint64]*branch
	sessions map[uint64]*Session
	queues   []*queue
}

// Restore takes over what another driver's Snapshot has told. The device has served nobody
// yet. It is as that one was, frozen, and writes to nothing that a client sees until Thaw:
// until then the other may go on after all. The descriptors are Restore's, also when it
// fails; then the device is of no use, and to be closed.
//
// An image of another version, or of another device, is refused before anything is made.
func (d *Device) Restore(ctx context.Context, img *Snapshot, fds []int, adopt Adopt) (err error) {
	im := &restorer{dev: d, ctx: ctx, img: img, adopt: adopt, fds: fds, branches: map[uint64]*branch{}, sessions: map[uint64]*Session{}}
	defer func() {
		for _, fd := range im.fds {
			unix.Close(fd)
		}
		if err != nil {
			im.drop()
		}
	}()
	if err := im.check(); err != nil {
		return err
	}
	free := false
	d.reactor.mail.call(func() {
		if free = d.reactor.freeze == nil; free {
			d.reactor.freeze = &freeze{held: true}
		}
	})
	if !free {
		return gpuerr.New(gpuerr.Busy, "the device is stopped already")
	}
	if err := im.all(); err != nil {
		return err
	}
	if len(im.fds) > 0 {
		return snapshot.Malformed("there are %d descriptors more than the queues have", len(im.fds))
	}
	return d.Check()
}

// drop lets go of what was made without a word to any client.
func (im *restorer) drop() {
	for _, q := range im.queues {
		r := im.dev.reactor
		r.mail.call(func() {
			q.over = true
			if q.joined {
				r.leave(q)
			}
		})
		if server, ok := q.ring.(*ring.Server); ok {
			server.Drop()
		}
		close(q.done)
	}
}

// check refuses what is not for this device.
func (im *restorer) check() error {
	d, img := im.dev, im.img
	switch {
	case img.Version != SnapshotVersion:
		return VersionError(SnapshotVersion, img.Version)
	case img.Device != d.cfg.Info.Name || img.Epoch != d.cfg.Info.Epoch || img.Backend != d.cfg.Backend.Info().Name:
		return snapshot.Malformed("it is of %q in epoch %d on %q, not of %q in %d on %q", img.Device, img.Epoch, img.Backend, d.cfg.Info.Name, d.cfg.Info.Epoch, d.cfg.Backend.Info().Name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.sessions) > 0 || d.lastSession > 0 {
		return gpuerr.New(gpuerr.Busy, "this driver has sessions of its own")
	}
	return nil
}

// VersionError is what a successor answers that does not know the state it is told.
func VersionError(have, want uint32) error {
	return gpuerr.New(gpuerr.Version, "have=%d want=%d: this driver takes over state of version %d, and the other one tells version %d; install drivers of one version, or restart the device", have, want, have, want)
}

func (im *restorer) all() error {
	d, img := im.dev, im.img
	d.mu.Lock()
	d.lastSession = img.LastSession
	d.opened = time.Now().Add(-max(img.Uptime, 0))
	d.mu.Unlock()
	d.reactor.resets.Store(img.Resets)
	d.reactor.strays.Store(img.Strays)
	d.reactor.faults.Store(img.Faults)
	if err := spendAll(d.ledger.Root(), img.Spent); err != nil {
		return err
	}
	for i := range img.Tenants {
		if err := im.tenant(&img.Tenants[i]); err != nil {
			return err
		}
	}
	for i := range img.Branches {
		b := &img.Branches[i]
		br := &branch{session: b.Session}
		br.strikes.Restore(b.Strikes)
		br.banned.Store(b.Banned)
		im.branches[b.Session] = br
	}
	for i := range img.Sessions {
		if err := im.session(&img.Sessions[i]); err != nil {
			return fmt.Errorf("take session %d over: %w", img.Sessions[i].ID, err)
		}
	}
	// Only now: a limit may have been lowered below what was held.
	for i := range img.Tenants {
		d.mu.Lock()
		t := d.tenants[img.Tenants[i].Name]
		d.mu.Unlock()
		setLimits(t.account, img.Tenants[i].Limits)
	}
	for i := range img.Sessions {
		setLimits(im.sessions[img.Sessions[i].ID].account, img.Sessions[i].Limits)
	}
	return nil
}
