package client

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"capgpu/control"
	"capgpu/gpuerr"
)

// Admin is a connection to device-manager's own socket, which its operator can open and no
// tenant can. Its calls return when what they ask for is done, or say why it is not; then
// nothing has changed, but for what ForceUpgrade has ended.
type Admin struct{ caller *control.Caller }

// Upgrade is what became of a live upgrade.
type Upgrade struct {
	Epoch      uint64        // the same as before
	Generation uint64        // drivers of this epoch, from 1
	Sessions   uint32        // that went on
	Preempted  uint32        // that were ended because they were in the way (ForceUpgrade)
	Pause      time.Duration // for which nothing of the device was begun
}

// DialAdmin connects to the socket.
func DialAdmin(ctx context.Context, path string) (*Admin, error) {
	nc, err := dial(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("%w: connect to %s: %w", gpuerr.Disconnected, path, rootOf(err))
	}
	fd, err := takeFD(nc.(*net.UnixConn))
	if err != nil {
		return nil, err
	}
	conn, err := control.NewConn(fd, control.ConnOptions{})
	if err != nil {
		return nil, err
	}
	return &Admin{control.NewCaller(conn)}, nil
}

// Upgrade replaces the driver of a device by another process of the program that is
// installed now. Sessions, buffers, fences and queues of all tenants go on.
// Work that a tenant has under way can be in the way: then it fails with gpuerr.Busy.
func (a *Admin) Upgrade(ctx context.Context, device string) (Upgrade, error) {
	return a.upgrade(ctx, control.UpgradeRequest{Device: device})
}

// ForceUpgrade is Upgrade, and ends the sessions that are in the way: with gpuerr.Revoked,
// reason=upgrade. It fails with gpuerr.Busy where that is of no use; the error says how many
// have ended all the same.
func (a *Admin) ForceUpgrade(ctx context.Context, device string) (Upgrade, error) {
	return a.upgrade(ctx, control.UpgradeRequest{Device: device, Force: true})
}

func (a *Admin) upgrade(ctx context.Context, req control.UpgradeRequest) (Upgrade, error) {
	m, err := a.caller.Call(ctx, control.TypeUpgrade, req.AppendTo(nil), nil)
	if err != nil {
		return Upgrade{}, err
	}
	r, err := control.ParseUpgradeReply(m.Body)
	return Upgrade{Epoch: r.Epoch, Generation: r.Generation, Sessions: r.Sessions, Preempted: r.Preempted, Pause: time.Duration(r.PauseNanos)}, err
}

// Suspend has the device begin nothing until Resume. Work that has begun ends first. Sessions
// stay; what is submitted waits; no deadline counts meanwhile.
func (a *Admin) Suspend(ctx context.Context, device string) error {
	_, err := a.ask(ctx, control.TypeSuspend, device)
	return err
}

// Resume ends a Suspend.
func (a *Admin) Resume(ctx context.Context, device string) error {
	_, err := a.ask(ctx, control.TypeResume, device)
	return err
}

func (a *Admin) ask(ctx context.Context, t control.MsgType, device string) (*control.Message, error) {
	return a.caller.Call(ctx, t, control.DeviceRequest{Device: device}.AppendTo(nil), nil)
}

// Plan tells what a policy file, by its text, would change if it was reloaded now: as JSON,
// manager.Changes. It fails with gpuerr.Invalid where it would be refused.
func (a *Admin) Plan(ctx context.Context, text []byte) ([]byte, error) {
	for {
		part := text[:min(len(text), control.MaxPlanBytes)]
		text = text[len(part):]
		m, err := a.caller.Call(ctx, control.TypePlan, control.PlanRequest{More: len(text) > 0, Text: part}.AppendTo(nil), nil)
		switch {
		case err != nil:
			return nil, err
		case len(text) == 0:
			return m.Body, nil
		}
	}
}

// Close ends the connection. Work that was asked for goes on.
func (a *Admin) Close() error { return a.caller.Close() }

// AdminSocket is the socket of the device-manager that serves a tenant's socket.
func AdminSocket(tenant string) string {
	return filepath.Join(filepath.Dir(tenant), "manager.admin.sock")
}
