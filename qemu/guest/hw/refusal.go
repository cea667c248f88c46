package main

import (
	"context"
	"os"
	"os/exec"
	"strings"

	"capgpu/qemu/guest/tap"
)

// mostUserNamespaces is how many user namespaces there may be, root's too
// (kernel/ucount.c, Linux 6.12).
const mostUserNamespaces = "/proc/sys/user/max_user_namespaces"

// checkRefusal: while the host has no namespaces left, a manager with a policy that requires
// them says so, and neither claims a function nor starts a process.
func (s *suite) checkRefusal() {
	s.Check("a required part of the sandbox that cannot be had: no start", func(c *tap.Check) {
		usual := tap.Get[[]byte](c, "read the limit of namespaces")(os.ReadFile(mostUserNamespaces))
		c.Must(os.WriteFile(mostUserNamespaces, []byte("0"), 0), "allow no namespaces")
		defer func() { c.Must(os.WriteFile(mostUserNamespaces, usual, 0), "allow namespaces again") }()

		ctx, cancel := context.WithTimeout(c.Ctx, stopBound)
		defer cancel()
		out, err := exec.CommandContext(ctx, "/bin/device-manager", "--policy="+friendlyPolicy, "--run-dir="+runDir).CombinedOutput()
		c.That(ctx.Err() == nil, "device-manager runs without: %s", out)
		c.That(err != nil, "device-manager ended as if it had done its work: %s", out)
		for _, want := range []string{"the policy requires a confinement that cannot be had here: namespaces: ", "; filesystem: ", "take it out of sandbox.require"} {
			c.That(strings.Contains(string(out), want), "it does not say %q: %s", want, out)
		}
		left := tap.Get[[]process](c, "list processes")(processes())
		c.That(len(left) == 0, "processes are left: %v", left)
		for _, f := range []string{edu0, edu1} {
			bound := tap.Get[string](c, "read the function's driver")(boundTo(f))
			c.That(bound == "", "%s is bound to %q", f, bound)
		}
		c.Say("%v; the reason is told", err)
	})
}
