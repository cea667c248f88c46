package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"capgpu/audit"
	"capgpu/client"
	"capgpu/outcome"
	"capgpu/qemu/guest/tap"
)

// The order of an attack lies at the start of its buffer, and the data that it has read one
// page further: see guest/hostile-driver.
const (
	orderBytes  = 4096
	attackBytes = 2 * 4096

	attackBound = 30 * time.Second

	// Intel's driver prints three faults in five seconds at most; the others are not reported
	// at all (docs/errors.md).
	printedFaults = 3
	printedWindow = 6 * time.Second
	// compressedTries bounds how often an attack without a reported fault is repeated.
	compressedTries = 2
)

// forbidden are the calls that the hostile driver makes; each ends it.
var forbidden = []string{
	"open-vfio", "open-mem", "open-proc", "open-policy", "ioctl", "mprotect", "mmap-exec", "socket", "netlink",
	"ptrace", "kill", "read-process", "fork", "unshare", "mount", "setuid", "module", "reboot",
}

// checkAttacks: alice's driver has been taken over. Its acts affect alice only.
func (s *suite) checkAttacks() {
	var bobs *bystander
	s.Check("bob's driver is honest, and he has data", func(c *tap.Check) {
		bobs = s.bystander(c, edu1)
	})
	if bobs == nil {
		return
	}

	s.Check("stray DMA is stopped, recorded and costs only its job", func(c *tap.Check) {
		before := s.ready(c, edu0)
		theirs := s.onlyMapped(c, edu1, edu0)
		for i, attack := range []struct{ what, who, order string }{
			// A fault is a strike of the tenant, and some of them a ban: they take turns.
			{"a write to nowhere", alice, "dma-write 0xf000000"},
			{"a write to bob's memory", carol, fmt.Sprintf("dma-write %#x", theirs)},
			{"a read of bob's memory", alice, fmt.Sprintf("dma-read %#x", theirs)},
			{"a write to the first page of all", carol, "dma-write 0x0"},
		} {
			if i == printedFaults {
				time.Sleep(printedWindow)
			}
			t := tap.Get[*tenant](c, "connect")(dial(c.Ctx, attack.who, edu0))
			defer t.close()
			w := t.opened(c)
			patient := t.opened(c) // another session on the same function
			guard := w.must(c, 64<<10)
			want := fillRandom(guard.mem, 5)
			faults, recorded := s.faults(c), len(s.records(c, "iommu.fault"))
			how, report, read := s.attack(c, w, attack.order)
			// The emulated IOMMU stops an access and records nothing of it while it has an
			// earlier one to report. Then the guest cannot know of it, and the access is
			// repeated.
			for range compressedTries {
				if how != outcome.Success || s.faults(c) > faults {
					break
				}
				time.Sleep(printedWindow)
				how, report, read = s.attack(c, w, attack.order)
			}
			c.That(how.Kind == outcome.Failed && how.Cause == outcome.IOMMUFault, "%s ended %v and reports %q", attack.what, how, report)
			c.That(s.faults(c) > faults, "%s: the kernel has seen no fault", attack.what)
			c.That(bytes.Equal(guard.mem, want), "%s has changed the tenant's own memory", attack.what)
			c.That(nonZero(read) < 0, "%s has read something: % x", attack.what, read[:min(16, len(read))])
			records := s.eventually(c, "iommu.fault", recorded+1)
			last := records[len(records)-1]
			c.That(strings.HasPrefix(last.Detail, edu0+" "), "%s is recorded as %q", attack.what, last.Detail)
			c.Must(patient.factorials(c.Ctx), "the other session on "+edu0)
			c.Must(errors.Join(w.Close(c.Ctx), patient.Close(c.Ctx)), "close the sessions")
		}
		c.That(s.ready(c, edu0) == before, "the driver is another one now")
		c.Say("4 kinds; each ends failed/iommuFault, each in the audit log; same driver")
	})
	s.Check("a driver that goes on with it is replaced", func(c *tap.Check) {
		t := s.tenant(c, edu0)
		defer t.close()
		w := t.opened(c)
		s.goesOn(c, w)
		c.Refused(w.Err(), "the session's end", ended...)
		state, err := t.waitReady(c.Ctx, w.Epoch())
		c.Must(err, "wait for the successor")
		c.Must(useOnce(c.Ctx, t), "use the successor")
		c.Say("epoch %d after %d", state.Epoch, w.Epoch())
	})
	s.Check("grants are what was granted", func(c *tap.Check) {
		t := s.tenant(c, edu0)
		defer t.close()
		w := t.opened(c)
		how, report, _ := s.attack(c, w, "grants")
		c.That(how == outcome.Success && strings.HasPrefix(report, "refused"), "it ended %v and reports %q", how, report)
		c.Must(w.Close(c.Ctx), "close the session")
		c.Say("%s", strings.TrimPrefix(report, "refused: "))
	})
	s.Check("forbidden system calls end the driver and nothing else", func(c *tap.Check) {
		t := s.tenant(c, edu0)
		defer t.close()
		recorded := len(s.records(c, "sandbox.violation"))
		for _, call := range forbidden {
			w := t.opened(c)
			_, report, _, err := s.tryAttack(c.Ctx, w, fmt.Sprintf("syscall %s %d", call, s.manager.pid()))
			c.That(err != nil, "%s did not end the driver, which reports %q", call, report)
			c.That(isEnded(err), "%s: %v", call, err)
			_, err = t.waitReady(c.Ctx, w.Epoch())
			c.Must(err, "wait for the successor")
			c.That(s.manager.running(), "%s ended the manager", call)
		}
		records := s.eventually(c, "sandbox.violation", recorded+len(forbidden))[recorded:]
		c.That(len(records) == len(forbidden), "%d violations are recorded, there were %d", len(records), len(forbidden))
		for _, r := range records {
			c.That(strings.HasPrefix(r.Detail, "driver "+edu0+" "), "recorded as %q", r.Detail)
		}
		c.Say("%d calls, each in the audit log", len(forbidden))
	})
	s.Check("bob has noticed nothing", func(c *tap.Check) {
		runs := bobs.quit(c)
		d := s.ready(c, edu1)
		c.That(d.epoch == 1, "bob's driver is of epoch %d", d.epoch)
		for _, r := range append(s.records(c, "iommu.fault"), s.records(c, "sandbox.violation")...) {
			c.That(!strings.Contains(r.Detail, edu1), "recorded of bob's function: %s", r.Detail)
		}
		c.Say("%d rounds of copies and launches, all right, his data as they were", runs)
	})
}

// attack has the driver attack and wants it to live on.
func (s *suite) attack(c *tap.Check, w *work, order string) (how outcome.Outcome, report string, read []byte) {
	how, report, read, err := s.tryAttack(c.Ctx, w, order)
	c.Must(err, order)
	return how, report, read
}

// goesOn storms until the driver of w is replaced, and w has ended with it. The kernel may
// have printed too few faults of one storm; then there is another, by another tenant, because
// each is a strike.
func (s *suite) goesOn(c *tap.Check, w *work) {
	const storms = 5
	attacker := w
	for n := 1; ; n++ {
		if _, _, _, err := s.tryAttack(c.Ctx, attacker, "dma-storm 40"); err != nil { // reported as a fault of the job, or with the driver's end
			c.That(isEnded(err), "the storm: %v", err)
		}
		select {
		case <-w.Done():
			return
		case <-time.After(printedWindow):
		case <-c.Ctx.Done():
		}
		if n == storms || c.Ctx.Err() != nil {
			c.Fatalf("it still serves after %d storms", n)
		}
		t, err := dial(c.Ctx, []string{alice, carol}[n%2], edu0)
		c.Must(err, "connect")
		defer t.close()
		next, err := t.open(c.Ctx)
		if err != nil { // w ends, too
			c.That(isEnded(err), "open another session: %v", err)
			next = attacker
		}
		attacker = next
	}
}

// tryAttack launches an attack. read is the data that it may have read.
func (s *suite) tryAttack(ctx context.Context, w *work, order string) (how outcome.Outcome, report string, read []byte, err error) {
	b, err := w.buffer(ctx, attackBytes)
	if err != nil {
		return how, "", nil, err
	}

	copy(b.mem, order)
	program, err := w.OpenProgram(ctx, "attack")
	if err != nil {
		return how, "", nil, err
	}

	done, err := w.run(ctx, &client.Launch{Program: program, Grid: client.Dim3{X: 1, Y: 1, Z: 1}, Deadline: attackBound, Bindings: []client.Binding{{Buffer: b.Buffer}}})
	if err == nil && done.Outcome.Kind == outcome.DeviceLost {
		<-w.Done()
		err = w.Err()
	}

	if err != nil {
		return how, "", nil, err
	}

	report, _, _ = strings.Cut(string(b.mem[:orderBytes]), "\x00")
	return done.Outcome, report, append([]byte(nil), b.mem[orderBytes:]...), nil
}

// records are the audit log's records of a kind.
func (s *suite) records(c *tap.Check, kind string) []audit.Entry {
	records := tap.Get[[]audit.Entry](c, "read the audit logs")(audit.ReadAll(auditPath))
	return slices.DeleteFunc(records, func(r audit.Entry) bool { return r.Kind != kind })
}

// eventually waits until there are count records of a kind.
func (s *suite) eventually(c *tap.Check, kind string, count int) []audit.Entry {
	for {
		records := s.records(c, kind)
		if len(records) >= count {
			return records
		}
		c.That(c.Ctx.Err() == nil, "the audit log has %d records %s, want %d", len(records), kind, count)
		time.Sleep(20 * time.Millisecond)
	}
}

// onlyMapped is an address that one function's driver has mapped and the other's has
// not: where it would be, if a domain were shared.
func (s *suite) onlyMapped(c *tap.Check, whose, notWhose string) uint64 {
	live := map[string]map[uint64]uint64{whose: {}, notWhose: {}} // bytes by address
	for _, r := range tap.Get[[]audit.Entry](c, "read the audit logs")(audit.ReadAll(auditPath)) {
		function, rest, _ := strings.Cut(r.Detail, " ")
		if r.Kind == "manager.start" { // earlier records do not count
			clear(live[whose])
			clear(live[notWhose])
		}
		if live[function] == nil {
			continue
		}
		iova, bytes := field(rest, "iova"), field(rest, "bytes")
		switch r.Kind {
		case "dma.map":
			live[function][iova] = bytes
		case "dma.unmap":
			delete(live[function], iova)
		}
	}

	for iova, bytes := range live[whose] {
		overlaps := false
		for other, n := range live[notWhose] {
			overlaps = overlaps || iova < other+n && other < iova+bytes
		}
		if !overlaps {
			return iova
		}
	}

	c.Fatalf("every mapping of %s has a namesake of %s: %v, %v", whose, notWhose, live[whose], live[notWhose])
	return 0
}

// field is a number of a record's detail, NAME=NUMBER.
func field(detail, name string) uint64 {
	for word := range strings.FieldsSeq(detail) {
		if v, ok := strings.CutPrefix(word, name+"="); ok {
			n, _ := strconv.ParseUint(v, 0, 64)
			return n
		}
	}
	return 0
}
