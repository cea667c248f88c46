package local

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/conformance"
)

// tenants are the suite's tenants, in the syntax of the policy.
func (s *Stack) tenants() []map[string]any {
	facets := []struct {
		name, facet string
		devices     []string
	}{
		{conformance.Alice, "full", s.device.names()[:1]},
		{conformance.Bob, "full", s.device.names()[:1]},
		{conformance.Carol, "full", s.device.names()},
		{conformance.Dave, "full", s.device.names()[:1]},
		{conformance.Erin, "memory", s.device.names()[:1]},
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	var all []map[string]any
	for _, f := range facets {
		limits := map[string]any{}
		if f.name == conformance.Dave {
			limits[s.device.can().Memory] = conformance.DaveBytes
		}
		for class, amount := range s.limits[f.name] {
			limits[class] = amount
		}
		t := map[string]any{"name": f.name, "allowedUids": "any", "facet": f.facet, "maxDeadline": "60s", "limits": limits}
		if len(s.o.Functions) > 0 {
			t["devices"] = f.devices
		}
		all = append(all, t)
	}

	return all
}

// writePolicy writes the file anew.
func (s *Stack) writePolicy() error {
	policy := map[string]any{"tenants": s.tenants()}
	maps.Copy(policy, s.device.policy(s))
	text, err := json.MarshalIndent(policy, "", "  ")
	if err != nil {
		return err
	}
	next := s.path("policy.next")
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, s.path("policy.json"))
}

// SetLimit implements conformance.Stack as an operator does, by the file and
// SIGHUP.
func (s *Stack) SetLimit(ctx context.Context, tenant, class string, amount uint64) error {
	s.mu.Lock()
	if s.limits[tenant] == nil {
		s.limits[tenant] = map[string]uint64{}
	}

	s.limits[tenant][class] = amount
	if amount == 0 {
		delete(s.limits[tenant], class)
		amount = conformance.DaveBytes
	}

	s.mu.Unlock()
	if err := s.writePolicy(); err != nil {
		return err
	}
	if err := unix.Kill(s.Manager(), unix.SIGHUP); err != nil {
		return err
	}

	for {
		held, err := s.Charges(ctx, tenant, 0)
		if err != nil {
			return err
		}
		for _, u := range held {
			if u.Class == class && u.Limit == amount {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the limit of %s does not come into force: %v", tenant, held)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
