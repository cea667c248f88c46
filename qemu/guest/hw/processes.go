package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"capgpu/qemu/guest/tap"
)

// allowed are the descriptors that a driver may have open: its three standard streams, its
// links, and those that came over them.
var allowed = []*regexp.Regexp{
	regexp.MustCompile(`^/dev/null$`),
	regexp.MustCompile(`^pipe:\[\d+\]$`),                                              // its standard error
	regexp.MustCompile(`^socket:\[\d+\]$`),                                            // its links, and one for each session
	regexp.MustCompile(`^/memfd:.* \(deleted\)$`),                                     // DMA memory and rings
	regexp.MustCompile(`^anon_inode:\[(eventfd|eventpoll|timerfd|signalfd|pidfd)\]$`), // interrupts, and the Go runtime's
}

// namespaces that a driver must not share with the manager.
var namespaces = []string{"user", "mnt", "net", "ipc", "uts", "cgroup"}

// checkProcesses checks the running processes: their users, and what a driver holds.
func (s *suite) checkProcesses() {
	s.Check("device-manager is the only root process", func(c *tap.Check) {
		all := tap.Get[[]process](c, "list processes")(processes())
		for slices.ContainsFunc(all, begins) {
			select {
			case <-c.Ctx.Done():
				c.Fatalf("what has begun does not go on: %v", all)
			case <-time.After(20 * time.Millisecond):
			}
			all = tap.Get[[]process](c, "list processes")(processes())
		}
		names := map[string]int{}
		for _, p := range all {
			names[p.name]++
			if p.pid == s.manager.pid() {
				c.That(p.uid == 0, "device-manager is user %d", p.uid)
				continue
			}
			c.That(p.uid != 0, "%v is root", p)
		}
		c.That(names["gpu-service"] >= 2 && names["gpu-service"] <= 4, "two drivers are wanted, and at most a standby for each; these run: %v", all)
		c.Say("beside it run %v", slices.Sorted(maps.Keys(names)))
	})
	s.Check("drivers are sandboxed", func(c *tap.Check) {
		seen := map[int]string{}
		for _, f := range []string{edu0, edu1} {
			p := tap.Get[process](c, "read the driver's status")(readProcess(s.ready(c, f).pid))
			for field, want := range map[string]string{
				"Seccomp": "2", "NoNewPrivs": "1",
				"CapEff": noCapability, "CapPrm": noCapability, "CapInh": noCapability, "CapBnd": noCapability, "CapAmb": noCapability,
			} {
				c.That(p.status[field] == want, "%v: %s is %q, want %q", p, field, p.status[field], want)
			}
			c.That(seen[p.uid] == "", "%s and %s have the same user %d", f, seen[p.uid], p.uid)
			seen[p.uid] = f
			for _, ns := range namespaces {
				c.That(s.namespace(c, p.pid, ns) != s.namespace(c, s.manager.pid(), ns), "%v shares the %s namespace of the manager", p, ns)
			}
			group := tap.Get[[]byte](c, "read its cgroup")(os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.pid)))
			c.That(strings.TrimSpace(string(group)) != "0::/", "%v is in no cgroup of its own", p)
		}
		c.Say("no capability, seccomp, no new privileges, %v namespaces and a user of their own", namespaces)
	})
	s.Check("a driver holds its links, memory and events, and its registers", func(c *tap.Check) {
		for _, f := range []string{edu0, edu1} {
			pid := s.ready(c, f).pid
			for fd, what := range tap.Get[map[int]string](c, "list its descriptors")(descriptors(pid)) {
				ok := slices.ContainsFunc(allowed, func(r *regexp.Regexp) bool { return r.MatchString(what) })
				c.That(ok, "the driver of %s has descriptor %d: %s", f, fd, what)
			}
			bars := 0
			for what, n := range tap.Get[map[string]int](c, "list its mappings")(mappings(pid)) {
				switch {
				case strings.Contains(what, "vfio"):
					bars += n
				case strings.HasPrefix(what, "/dev/"):
					c.Fatalf("the driver of %s has mapped %s", f, what)
				}
			}
			c.That(bars == 1, "the driver of %s has %d mappings of registers", f, bars)
		}
		c.Say("no descriptor of vfio; one BAR window mapped in each")
	})
}

// begins: until a standby has entered its sandbox it is called by the number of the
// descriptor that it was executed from.
func begins(p process) bool {
	_, err := strconv.Atoi(p.name)
	return err == nil
}

// noCapability is an empty set in /proc/PID/status.
const noCapability = "0000000000000000"

func (s *suite) namespace(c *tap.Check, pid int, kind string) string {
	return tap.Get[string](c, "read a namespace")(os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind)))
}
