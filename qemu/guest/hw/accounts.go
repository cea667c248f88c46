package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"capgpu/qemu/guest/ctl"
	"capgpu/qemu/guest/tap"
)

// budgetsAreZero waits until no tenant is charged for anything.
func (s *suite) budgetsAreZero(c *tap.Check) {
	ctx, cancel := context.WithTimeout(c.Ctx, settleBound)
	defer cancel()
	for function, tenant := range owners {
		if !s.present(function) {
			continue
		}
		for {
			out := tap.Get[string](c, "ask for the budget")(ctl.Run("--socket="+socket(tenant), "budget", "--json", "--device="+function))
			used := ctl.InUse(c, out)
			if len(used) == 0 {
				break
			}
			c.That(ctx.Err() == nil, "%s is still charged: %v", tenant, used)
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func (s *suite) present(function string) bool {
	_, err := boundTo(function)
	return err == nil
}

// checkAccounts: at the end nothing is charged, and the manager's account of its mappings is
// the kernel's.
func (s *suite) checkAccounts() {
	s.Check("ledger is at zero after every close", func(c *tap.Check) {
		if s.broken == "leak" {
			t := s.tenant(c, edu0)
			defer t.close()
			defer t.opened(c).Close(c.Ctx)
			ctx, cancel := context.WithTimeout(c.Ctx, time.Second)
			defer cancel()
			c.Ctx = ctx
		}
		s.budgetsAreZero(c)
	})
	s.Check("gpuctl doctor runs", func(c *tap.Check) {
		out, err := ctl.Run("doctor")
		c.That(out != "", "gpuctl doctor says nothing: %v", err)
		for line := range strings.Lines(out) {
			fmt.Printf("# %s\n", strings.TrimRight(line, "\n"))
		}
		c.Say("%d lines", len(strings.Split(out, "\n")))
	})
}

// checkLog: the log verifies, and agrees with the kernel.
func (s *suite) checkLog() {
	s.Check("gpuctl audit verify", func(c *tap.Check) {
		out := tap.Get[string](c, "verify")(ctl.Run("audit", "verify", "--log="+auditPath))
		first, _, _ := strings.Cut(out, "\n")
		c.Say("%s", first)
	})
	s.Check("gpuctl audit reconcile: the manager's record and the kernel's agree", func(c *tap.Check) {
		out := tap.Get[string](c, "reconcile")(ctl.Run("audit", "reconcile", "--log="+auditPath))
		for line := range strings.Lines(out) {
			fmt.Printf("# %s\n", strings.TrimRight(line, "\n"))
		}
	})
}
