package main

import (
	"bytes"
	"time"

	"capgpu/qemu/guest/tap"
)

// checkManagerKilled: a manager that dies takes its children along; the next one finds
// the functions where they were left, and they work.
func (s *suite) checkManagerKilled() {
	s.Check("kill -9 of the manager ends every driver and session", func(c *tap.Check) {
		t := s.tenant(c, edu0)
		defer t.close()
		w := t.opened(c)
		src, dst := w.must(c, 1<<20), w.must(c, 1<<20)
		fillRandom(src.mem, 9)
		_, err := w.submit(copyOf(dst, src, 1<<20))
		c.Must(err, "submit")
		faults := s.faults(c)
		start := time.Now()
		s.manager.kill()
		c.That(signalled(s.manager.err), "the manager ended %v", s.manager.err)
		select {
		case <-w.Done():
		case <-c.Ctx.Done():
			c.Fatalf("a session goes on without manager")
		}
		c.Refused(w.Err(), "the session's end", ended...)
		for {
			left := tap.Get[[]process](c, "list processes")(processes())
			if len(left) == 0 {
				break
			}
			c.That(c.Ctx.Err() == nil, "processes outlive their manager: %v", left)
			time.Sleep(pollEvery)
		}
		took := time.Since(start)
		// The device may not continue: our memory stays as it is now.
		held := append([]byte(nil), dst.mem...)
		time.Sleep(2 * oneTransfer)
		c.That(bytes.Equal(dst.mem, held), "the device goes on without manager")
		c.That(s.faults(c) == faults, "it was the IOMMU that stopped the device: %s", s.lastFault(c))
		for _, f := range []string{edu0, edu1} {
			bound := tap.Get[string](c, "read the function's driver")(boundTo(f))
			c.That(bound == "vfio-pci", "%s is bound to %q", f, bound)
		}
		c.Say("nobody left after %v; functions stay with vfio-pci", took.Round(10*time.Millisecond))
	})
	s.checkStart("the next manager takes the stranded functions over", friendlyPolicy)
	s.Check("both work as before", func(c *tap.Check) {
		for _, f := range []string{edu0, edu1} {
			t := s.tenant(c, f)
			defer t.close()
			s.lookAtAll(c, t)
			w := t.opened(c)
			src, dst := w.must(c, stepBytes), w.must(c, stepBytes)
			want := fillRandom(src.mem, 3)
			c.Must(w.copied(c.Ctx, dst, src, 0, 0, stepBytes), "copy")
			c.That(bytes.Equal(dst.mem, want), "the copy differs at %d", differ(dst.mem, want))
			c.Must(w.Close(c.Ctx), "close the session")
		}
		c.Say("all memory zero, a copy right, on each")
	})
}
