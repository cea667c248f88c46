package main

import (
	"context"
	"fmt"
	"time"

	"capgpu/client"
)

// adminTimeout is longer than any step of the manager for which a command waits.
const adminTimeout = time.Minute

// operator is the common part of the operator's commands. The socket is the
// manager's own, beside the tenants' sockets.
type operator struct {
	Device string `arg:"" help:"Name of the device; \"gpuctl devices\" shows it."`
	Admin  string `help:"Admin socket of device-manager. Default: manager.admin.sock beside the tenant socket." placeholder:"PATH"`
}

func (o operator) do(ctx context.Context, a *app, f func(context.Context, *client.Admin) error) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	path := o.Admin
	if path == "" {
		path = client.AdminSocket(a.socketPath())
	}
	admin, err := client.DialAdmin(ctx, path)
	if err != nil {
		return &dialError{path: path, err: err, whom: toOperator}
	}
	defer admin.Close()
	return f(ctx, admin)
}

type upgradeCmd struct {
	operator `embed:""`
	Force    bool `help:"End the sessions that keep the driver from being replaced, because their work does not end in time or they have too much. All others go on."`
}

func (c upgradeCmd) Run(ctx context.Context, a *app) error {
	return c.do(ctx, a, func(ctx context.Context, admin *client.Admin) error {
		upgrade := admin.Upgrade
		if c.Force {
			upgrade = admin.ForceUpgrade
		}

		u, err := upgrade(ctx, c.Device)
		if err != nil {
			return err
		}

		if a.json {
			a.printJSON(struct {
				Device     string `json:"device"`
				Epoch      uint64 `json:"epoch"`
				Generation uint64 `json:"generation"`
				Sessions   uint32 `json:"sessions"`
				Preempted  uint32 `json:"preempted"`
				PauseNanos int64  `json:"pauseNanos"`
			}{c.Device, u.Epoch, u.Generation, u.Sessions, u.Preempted, u.Pause.Nanoseconds()})
			return nil
		}

		fmt.Fprintf(a.out, "%s has another driver: generation %d of epoch %d, %d sessions went on, %d were in the way and have ended, nothing was begun for %v.\n",
			visible(c.Device), u.Generation, u.Epoch, u.Sessions, u.Preempted, u.Pause.Round(100*time.Microsecond))
		return nil
	})
}

type suspendCmd struct {
	operator `embed:""`
}

func (c suspendCmd) Run(ctx context.Context, a *app) error {
	return c.do(ctx, a, func(ctx context.Context, admin *client.Admin) error {
		return a.doneWith(c.Device, "suspended", admin.Suspend(ctx, c.Device))
	})
}

type resumeCmd struct {
	operator `embed:""`
}

func (c resumeCmd) Run(ctx context.Context, a *app) error {
	return c.do(ctx, a, func(ctx context.Context, admin *client.Admin) error {
		return a.doneWith(c.Device, "resumed", admin.Resume(ctx, c.Device))
	})
}

func (a *app) doneWith(device, what string, err error) error {
	switch {
	case err != nil:
		return err
	case a.json:
		a.printJSON(struct {
			Device string `json:"device"`
			Now    string `json:"now"`
		}{device, what})
	default:
		fmt.Fprintf(a.out, "%s is %s.\n", visible(device), what)
	}
	return nil
}
