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

// wireLimits lists the limited classes only: others are unlimited.
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

// tellTenants sends a driver the limits of tenants, so that each has a budget before its
// first session. A refusal does no harm, because sessions bring most of it again. A driver
// that does not answer within patience is ended.
func (d *device) tellTenants(ctx context.Context, l *driverLink, tenants []*Tenant, patience time.Duration) error {
	told, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	// At the same time, because clients wait.
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

// telling is tellTenants for a driver that is not ready yet. Such a driver answers as soon as
// it reads, so that clients do not wait for it when it is ready.
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

// await returns when all limits are sent, or when the driver, which is ready, does not answer
// within patience.
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

// end stops the sending and waits for it.
func (t *telling) end() {
	t.cancel()
	for range t.told {
	}
}

func errSilent(patience time.Duration) error {
	return fmt.Errorf("the driver did not answer for %v", patience)
}

// maxTelling is how many tenants' limits are sent at once: less than half of the requests
// that a link carries.
const maxTelling = 16

// changed returns the tenants that are new or have another policy.
func changed(before, now []*Tenant) (tenants []*Tenant) {
	for _, t := range now {
		if !slices.Contains(before, t) {
			tenants = append(tenants, t)
		}
	}
	return tenants
}

// gone returns the names of tenants that were removed.
func gone(before, now []*Tenant) (names []string) {
	for _, t := range before {
		if !slices.ContainsFunc(now, func(other *Tenant) bool { return other.Name == t.Name }) {
			names = append(names, t.Name)
		}
	}
	return names
}
