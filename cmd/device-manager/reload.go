package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"capgpu/gpuerr"
	"capgpu/ledger"
)

// limiter is what reload needs of a Manager.
type limiter interface {
	Tenants() []string
	SetTenantLimits(ctx context.Context, tenant string, l ledger.Limits) error
}

// reload reads the policy again and applies what can change while it runs: the
// limits of the tenants that are served. It says of every other tenant that it
// needs a restart.
func reload(o *options, m limiter, log *slog.Logger, say func(string)) {
	policy, err := o.policy()
	if err != nil {
		log.Warn("reload the policy; the old one stays", "err", err)
		say("capgpu: the policy was not reloaded: " + err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	served := m.Tenants()
	var applied int
	var added, failed []string
	for _, t := range policy.Tenants {
		if !slices.Contains(served, t.Name) {
			added = append(added, t.Name)
			continue
		}
		if err := m.SetTenantLimits(ctx, t.Name, t.Limits); err != nil {
			log.Warn("apply new limits", "tenant", t.Name, "err", err)
			failed = append(failed, fmt.Sprintf("%s (%s)", t.Name, reason(err)))
			continue
		}
		applied++
	}
	gone := slices.DeleteFunc(served, func(name string) bool { return policy.Tenant(name) != nil })
	log.Info("reloaded the policy", "applied", applied, "failed", len(failed), "added", added, "gone", gone)
	if len(failed) > 0 {
		say("capgpu: limits that only new sessions have: " + strings.Join(failed, ", "))
	}
	if len(added) > 0 {
		say("capgpu: new tenants, not served before a restart: " + strings.Join(added, ", "))
	}
	if len(gone) > 0 {
		say("capgpu: tenants that the policy has no more, served as before until a restart: " + strings.Join(gone, ", "))
	}
	if applied == len(policy.Tenants) && len(gone) == 0 {
		say("capgpu: limits reloaded; everything else of the policy needs a restart")
		return
	}
	say(fmt.Sprintf("capgpu: limits reloaded for %d of %d tenants; everything else of the policy needs a restart", applied, len(policy.Tenants)+len(gone)))
}

func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "the driver did not answer"
	}
	return gpuerr.From(err).Error()
}
