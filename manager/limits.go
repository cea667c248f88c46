package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

func (d *device) sendTenant(ctx context.Context, l *driverLink, t *Tenant) error {
	req := control.SetTenantRequest{Tenant: t.Name, Weight: t.Weight, MaxDeadlineNanos: uint64(t.MaxDeadline), Limits: wireLimits(t.Limits)}
	_, err := l.call(ctx, control.TypeSetTenant, req.AppendTo(nil), nil)
	return err
}

// tellTenants tells a driver what tenants have, so that each has a budget before it has a
// session. A refusal is no harm, sessions bring most of it again; a driver that does not
// answer for patience is over.
func (d *device) tellTenants(ctx context.Context, l *driverLink, tenants []*Tenant, patience time.Duration) error {
	told, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	// Side by side: clients wait for it.
	errs := make([]error, len(tenants))
	var telling sync.WaitGroup
	for at := 0; at < len(tenants); at += maxTelling {
		for i := at; i < min(at+maxTelling, len(tenants)); i++ {
			telling.Go(func() { errs[i] = d.sendTenant(told, l, tenants[i]) })
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
			d.log.Warn("the driver refused what a tenant has", "tenant", tenants[i].Name, "err", err)
		}
	}

	return nil
}

// telling is tellTenants of a driver that is not ready yet: it answers as soon as it hears,
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
		t.told <- d.tellTenants(ctx, l, tenants, d.cfg.ReadyTimeout+d.cfg.PingTimeout)
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

// changed are the tenants that are new, or of which the policy is another by now.
func changed(before, now []*Tenant) (tenants []*Tenant) {
	for _, t := range now {
		if !slices.Contains(before, t) {
			tenants = append(tenants, t)
		}
	}
	return tenants
}

// gone are the names of tenants that are there no more.
func gone(before, now []*Tenant) (names []string) {
	for _, t := range before {
		if !slices.ContainsFunc(now, func(other *Tenant) bool { return other.Name == t.Name }) {
			names = append(names, t.Name)
		}
	}
	return names
}
