package local

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
)

// Upgrade implements conformance.Stack, as an operator does it.
func (s *Stack) Upgrade(ctx context.Context, device uint32, fits bool) (said string, err error) {
	args := []string{"upgrade", s.device.names()[device], "--admin-socket", s.path("run/admin.sock")}
	if !fits {
		args = append(args, "--driver", filepath.Join(s.dir, "another-version"))
	}
	out, err := exec.CommandContext(ctx, filepath.Join(s.o.Bin, "gpuctl"), args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
