package local

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
)

// CannotUpgrade implements conformance.Stack.
func (s *Stack) CannotUpgrade() string {
	out, err := exec.Command(filepath.Join(s.o.Bin, "gpuctl"), "upgrade", "--help").CombinedOutput()
	switch {
	case err != nil && strings.Contains(string(out), "no command upgrade"):
		return "this gpuctl has no command upgrade"
	case len(s.o.Functions) > 0:
		return "the driver of a function on hardware is refused for an upgrade: its device cannot be handed over in flight yet"
	}
	return ""
}

// Upgrade implements conformance.Stack, as an operator does it.
func (s *Stack) Upgrade(ctx context.Context, device uint32, fits bool) (said string, err error) {
	args := []string{"upgrade", s.device.names()[device], "--admin-socket", s.path("run/admin.sock")}
	if !fits {
		args = append(args, "--driver", filepath.Join(s.dir, "another-version"))
	}
	out, err := exec.CommandContext(ctx, filepath.Join(s.o.Bin, "gpuctl"), args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
