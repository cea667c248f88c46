package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"capgpu/qemu/guest/ctl"
	"capgpu/qemu/guest/tap"
)

// checkAccounts: after all of it nothing is charged, and the log is intact.
func (s *smoke) checkAccounts() {
	if s.broken == "leak" {
		_, _ = s.conn.Open(context.Background(), 0)
	}

	s.check("ledger is at zero after every close", func(c *check) {
		s.eventuallyNoSession(c)
		out, err := gpuctl(s, "budget", "--json")
		c.Must(err, "gpuctl budget")
		used := ctl.InUse(c.Check, out)
		c.That(len(used) == 0, "still charged: %v", used)
	})
	s.check("gpuctl audit verify", func(c *check) {
		out, err := gpuctl(s, "audit", "verify", "--log="+s.audit)
		c.Must(err, "verify the log")
		c.Say("%s", firstLine(out))
	})
	s.check("gpuctl audit verify finds a flipped byte", func(c *check) {
		log := tap.Get[[]byte](c.Check, "read the log")(os.ReadFile(s.audit))
		dir := tap.Get[string](c.Check, "make a folder")(os.MkdirTemp("", "audit-"))
		copied := filepath.Join(dir, "audit.log")
		log[len(log)/2] ^= 0x01
		c.Must(os.WriteFile(copied, log, 0o600), "write the spoiled log")
		out, err := gpuctl(s, "audit", "verify", "--log="+copied)
		c.That(err != nil, "it verifies: %s", out)
		c.Say("%s", firstLine(out))
	})
}

// gpuctl runs the command line tool as the tenant.
func gpuctl(s *smoke, args ...string) (string, error) {
	return ctl.Run(append([]string{"--socket=" + s.socket(tenant)}, args...)...)
}

func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}
