package manager

import (
	"context"
	"errors"
	"time"

	"capgpu/control"
	"capgpu/ddf"
	"capgpu/ddf/dmabuf"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/internal/shm"
)

// peer is the supervision link to a driver: *control.Caller, or an Actor.
type peer interface {
	Call(ctx context.Context, t control.MsgType, body []byte, fds []int) (*control.Message, error)
	Done() <-chan struct{}
	Err() error
	Close() error
}

// Actor plays a driver within this process, for a Stage: it stands for the link to the driver
// and for the driver's process.
type Actor interface {
	peer
	// Kill ends it at once, from any state. Idempotent.
	Kill()
	// Wait returns when the actor calls no grant any more, with how it ended.
	Wait() error
}

// Role is what an Actor gets: the grants of its epoch, and the handler of its requests.
type Role struct {
	Device ddf.DeviceInfo
	DMA    ddf.DMAPool
	Audit  ddf.HardwareAuditLog
	Ask    control.Handler // Ready, SettleFaults
}

// openDriver starts the driver of an epoch.
func (d *device) openDriver(ctx context.Context, g *grants, desk *faultDesk) (*driverLink, error) {
	if d.drivers.actors == nil {
		return d.startDriver(ctx, g, desk)
	}

	l := &driverLink{
		epoch: g.info.Epoch, child: &child{name: "actor", exited: make(chan struct{})}, gate: rpcguard.NewGate(), sessions: g.sessions, failure: g.failure,
		settle: func(ctx context.Context) (time.Duration, error) { return d.settleFaults(ctx, desk) },
		ready:  make(chan control.ReadyRequest, 1), grantsDone: make(chan struct{}),
		escalate: d.board.escalate, escalating: make(chan struct{}, 1), short: d.showShort,
	}
	p := &actorPool{g: g, ended: l.gate.Context()}
	a := d.drivers.actors(Role{Device: g.info, DMA: p, Audit: actorLog{g}, Ask: l.handle})
	l.caller, l.child.actor = a, a
	go func() {
		l.child.err = a.Wait()
		p.drop()
		close(l.grantsDone)
		close(l.child.exited)
	}()

	return l, nil
}

// actorPool is the DMA pool of an Actor: the grants without a link in between.
type actorPool struct {
	g     *grants
	ended context.Context
}

// drop runs after the end of the actor: the manager takes its mappings back.
func (p *actorPool) drop() { p.g.freeDropped() }

func (p *actorPool) over() error {
	if p.ended.Err() != nil {
		return errGrantsRevoked
	}
	return nil
}

// Alloc implements ddf.DMAPool.
func (p *actorPool) Alloc(ctx context.Context, bytes uint64) (ddf.DMABuffer, error) {
	if err := errors.Join(p.over(), ctx.Err()); err != nil {
		return nil, err
	}

	p.g.freeDropped()
	d, err := p.g.alloc(bytes)
	if err != nil {
		return nil, err
	}

	memory, err := dup(d.memory)
	if err != nil {
		return nil, errors.Join(err, p.g.free(d))
	}

	b, err := dmabuf.New(dmabuf.Spec{
		IOVA: d.iova, Bytes: d.bytes, Generation: d.generation, Memory: memory, Pinned: !p.g.info.Fake, Ended: p.over,
		Unmap: func() error {
			if p.over() != nil { // a dead driver frees nothing: the manager does
				return nil
			}
			return p.g.free(d)
		},
	})
	if err != nil {
		return nil, errors.Join(err, p.g.free(d))
	}

	return b, nil
}

// dup returns the memory with a descriptor of its own, as a driver gets it.
func dup(m *shm.Memory) (*shm.Memory, error) {
	fd, err := m.DupFD()
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "duplicate DMA memory: %v", err)
	}
	return shm.FromFD(fd, m.Size())
}

// Usage implements ddf.DMAPool.
func (p *actorPool) Usage() ddf.PoolUsage { return p.g.usage() }

// actorLog is the audit log of an Actor.
type actorLog struct{ g *grants }

// Append implements ddf.HardwareAuditLog.
func (l actorLog) Append(kind, detail string) error {
	_, err := l.g.auditAppend(kind, detail)
	return err
}

// Snapshot implements ddf.HardwareAuditLog.
func (l actorLog) Snapshot(from uint64, max int) ([]ddf.AuditRecord, error) {
	records, _, err := l.g.auditSnapshot(from, uint32(max))
	return records, err
}

// Verify implements ddf.HardwareAuditLog.
func (l actorLog) Verify() (ddf.AuditHead, error) { return l.g.logs.drivers.Head() }
