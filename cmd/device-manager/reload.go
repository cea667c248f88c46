package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"capgpu/manager"
)

// reloader is the part of a Manager that reload needs.
type reloader interface {
	Reload(ctx context.Context, p *manager.Policy) (manager.Changes, error)
}

// reload reads the policy again and makes the manager apply its tenants. It reports
// what has changed, what has not, and what needs a restart.
func reload(ctx context.Context, o *options, m reloader, log *slog.Logger, say func(string)) {
	changes, err := func() (manager.Changes, error) {
		policy, _, err := o.good()
		if err != nil {
			return manager.Changes{}, err
		}
		return m.Reload(ctx, policy)
	}()
	if err != nil {
		log.Warn("reload the policy; the old one stays", "err", err)
		say("capgpu: the policy was not reloaded: " + err.Error())
		return
	}

	log.Info("reloaded the policy", "tenants", len(changes.Tenants), "restart", changes.Restart, "failed", len(changes.Failed))
	for _, line := range inWords(changes, was) {
		say("capgpu: " + line)
	}

	for _, failed := range changes.Failed {
		say("capgpu: not in force: " + failed)
	}

	say("capgpu: policy reloaded")
}

// tense is the wording of changes: as done, or as planned.
type tense struct{ added, removed, changed, end, restart string }

var (
	was   = tense{"added", "removed", "changed", "ended", "needs a restart, and stays as it was: "}
	would = tense{"would be added", "would be removed", "would be changed", "would end", "would need a restart: "}
)

// inWords returns a line for each change.
func inWords(c manager.Changes, how tense) (lines []string) {
	for _, t := range c.Tenants {
		line := fmt.Sprintf("tenant %s %s", t.Tenant, map[string]string{"added": how.added, "removed": how.removed, "changed": how.changed}[t.Change])
		if len(t.Fields) > 0 {
			line += " (" + strings.Join(t.Fields, ", ") + ")"
		}
		if t.Sessions > 0 || t.Connections > 0 {
			line += fmt.Sprintf(": %s and %s %s", counted(t.Sessions, "session"), counted(t.Connections, "connection"), how.end)
		}
		lines = append(lines, line)
	}
	if len(c.Restart) > 0 {
		lines = append(lines, how.restart+strings.Join(c.Restart, ", "))
	}
	return lines
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
