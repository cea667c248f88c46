package manager

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// follow ends the sessions and connections that have to end, and tells drivers and new
// tenants their limits.
func (r *reloading) follow(ctx context.Context) {
	type told struct {
		device *device
		ended  map[string]int
		err    error
	}
	answers := make(chan told, len(r.m.devices))
	for _, d := range r.m.devices {
		go func() { // at the same time, so that a driver that does not answer delays no other
			ended, err := d.revise(ctx, &r.rev)
			answers <- told{d, ended, err}
		}()
	}

	ended := map[string]int{}
	for range r.m.devices {
		a := <-answers
		for tenant, n := range a.ended {
			ended[tenant] += n
		}
		if a.err != nil {
			r.fail("%v", a.err)
		}
	}

	for i := range r.changes.Tenants {
		c := &r.changes.Tenants[i]
		c.Sessions = ended[c.Tenant]
	}

	// Sessions have ended, each with its reason, and their gates are telling the clients. Now
	// the connections end.
	r.farewell(ctx)
	for _, s := range r.all {
		for _, c := range s.all() {
			if denied := c.denied.Load(); denied != nil {
				c.cancel(denied)
			}
		}
	}

	r.m.setServers(r.all) // later records of drivers about removed tenants are in the drivers' own logs
	grace := newGrace(closeGrace)
	for _, s := range r.removed {
		s.cancel(errRemoved(s.policy().Name))
		if err := s.Close(grace); err != nil {
			r.fail("%v", err)
		}
	}

	for _, s := range r.added {
		s.start()
	}
}

// farewellTime is how long connections stay open after their sessions have ended, so that
// gates can tell their clients the reason.
const farewellTime = 200 * time.Millisecond

// farewell waits so long, if such a connection exists.
func (r *reloading) farewell(ctx context.Context) {
	if !slices.ContainsFunc(r.changes.Tenants, func(c TenantChange) bool { return c.Connections > 0 }) {
		return
	}
	timer := time.NewTimer(farewellTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (r *reloading) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.m.log.Warn("of a policy that was reloaded something has not taken effect", "what", text)
	r.changes.Failed = append(r.changes.Failed, text)
}
