package manager

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/ledger"
)

// wireLimits names only what is limited: the rest is unlimited.
func wireLimits(l ledger.Limits) (list []control.Limit) {
	for class, amount := range l {
		if amount != ledger.Unlimited {
			list = append(list, control.Limit{Class: uint32(class), Amount: amount})
		}
	}
	return list
}

func (d *device) sendLimits(ctx context.Context, l *driverLink, tenant string, limits ledger.Limits) error {
	req := control.SetLimitsRequest{Tenant: tenant, Limits: wireLimits(limits)}
	_, err := l.call(ctx, control.TypeSetLimits, req.AppendTo(nil), nil)
	return err
}

// setLimits tells the driver, if there is one, of new limits.
func (d *device) setLimits(ctx context.Context, tenant string, limits ledger.Limits) error {
	s, _ := d.board.get()
	if s.link == nil {
		return nil // the next driver is told before it is ready
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.PingTimeout)
	defer cancel()
	return d.sendLimits(ctx, s.link, tenant, limits)
}

// tellLimits gives a new driver the limits of tenants, so that each has a budget
// before it has a session. A refusal is no harm, sessions bring them again; a
// driver that does not answer for patience is over.
func (d *device) tellLimits(ctx context.Context, l *driverLink, tenants []*Tenant, patience time.Duration) error {
	told, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// Side by side: clients wait for it.
	errs := make([]error, len(tenants))
	var telling sync.WaitGroup
	for at := 0; at < len(tenants); at += maxTelling {
		for i := at; i < min(at+maxTelling, len(tenants)); i++ {
			telling.Go(func() { errs[i] = d.sendLimits(told, l, tenants[i].Name, tenants[i].Limits) })
		}
		telling.Wait()
	}
	for i, err := range errs {
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			return errSilent(patience)
		case errors.Is(err, gpuerr.Disconnected), errors.Is(err, gpuerr.Closed):
			return l.exitedOr(fmt.Errorf("the driver's supervision link failed: %w", err))
		default:
			d.log.Warn("the driver refused a tenant's limits", "tenant", tenants[i].Name, "err", err)
		}
	}
	return nil
}

// telling is tellLimits of a driver that is not ready yet: it answers as soon as it hears,
// so that nobody waits for that when it is.
type telling struct {
	cancel context.CancelFunc
	told   chan error // holds one
}

func (d *device) beginTelling(ctx context.Context, l *driverLink, tenants []*Tenant) *telling {
	ctx, cancel := context.WithCancel(ctx)
	t := &telling{cancel: cancel, told: make(chan error, 1)}
	go func() {
		defer close(t.told)
		t.told <- d.tellLimits(ctx, l, tenants, d.cfg.ReadyTimeout+d.cfg.PingTimeout)
	}()
	return t
}

// await returns when all are told, or the driver, which is ready, does not answer for
// patience.
func (t *telling) await(patience time.Duration) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-t.told:
		return err
	case <-timer.C:
		return errSilent(patience)
	}
}

// end returns when nobody is told any more.
func (t *telling) end() {
	t.cancel()
	for range t.told {
	}
}

func errSilent(patience time.Duration) error {
	return fmt.Errorf("the driver did not answer for %v", patience)
}

// maxTelling is how many tenants' limits are told at once: less than half of the
// requests that a link carries.
const maxTelling = 16

// changed are the tenants of which the policy is another by now.
func changed(before, now []*Tenant) (tenants []*Tenant) {
	for i, t := range now {
		if t != before[i] {
			tenants = append(tenants, t)
		}
	}
	return tenants
}
