package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/qemu/guest/tap"
)

// killMoment is the last moment of a session at which its driver is killed: it has begun its
// second transfer then.
const killMoment = 180 * time.Millisecond

// killBytes is the size of its copy, in more steps than it has time for.
const killBytes = 4 * stepBytes

// checkKills kills drivers again and again; each time there is a successor that works,
// and in the end there is as much as at the start.
func (s *suite) checkKills() {
	var before holdings
	var memory uint64
	s.Check("what the manager holds is counted", func(c *tap.Check) {
		for _, f := range []string{edu0, edu1} { // once, for resources that are made at the first time
			c.Must(s.killOne(c.Ctx, f, rand.New(rand.NewPCG(0, 0))), f)
		}
		t := s.tenant(c, edu0)
		memory = s.lookAtAll(c, t)
		t.close()
		before = s.settled(c, holdings{})
		c.Say("%v", before)
	})
	young := s.kills / 10 * 2 // of those that are not ready yet
	s.Check(fmt.Sprintf("kill -9 of drivers at random moments under load, seed %d", s.seed), func(c *tap.Check) {
		start := time.Now()
		var both sync.WaitGroup
		errs := make([]error, 2)
		for i, f := range []string{edu0, edu1} {
			both.Go(func() {
				random := rand.New(rand.NewPCG(s.seed, uint64(i)))
				for n := range (s.kills - young) / 2 {
					if err := s.killOne(c.Ctx, f, random); err != nil {
						errs[i] = fmt.Errorf("%s, kill %d: %w", f, n, err)
						return
					}
				}
			})
		}
		both.Wait()
		c.Must(errors.Join(errs...), "kill")
		c.Say("%d kills in %v; each time the next session worked", (s.kills-young)/2*2, time.Since(start).Round(time.Second))
	})
	s.Check("kill -9 of drivers that are not ready yet", func(c *tap.Check) {
		random := rand.New(rand.NewPCG(s.seed, 2))
		for n := range young / 2 {
			f := []string{edu0, edu1}[n%2]
			c.Must(s.killYoung(c.Ctx, f, random), fmt.Sprintf("kill %d of %s", n, f))
		}
		c.Say("%d kills, half of them before ready", young/2*2)
	})
	s.Check("no descriptor, mapping, process or cgroup is left, and all memory is there", func(c *tap.Check) {
		after := s.settled(c, before)
		c.That(after.equal(before), "the manager held %v, and now %v: %s", before, after, after.difference(before))
		t := s.tenant(c, edu0)
		defer t.close()
		n := s.lookAtAll(c, t)
		c.That(n == memory, "%d bytes could be had before, and now %d", memory, n)
		s.budgetsAreZero(c)
		c.Say("%v; ledger at zero", after)
	})
}

// killOne kills the driver of a function at a random moment of a session that works,
// and waits until the next session does.
func (s *suite) killOne(ctx context.Context, function string, random *rand.Rand) error {
	t, err := dial(ctx, owners[function], function)
	if err != nil {
		return err
	}

	defer t.close()
	w, err := t.open(ctx)
	if err != nil {
		return err
	}

	d, err := s.driverOf(ctx, function, w)
	if err != nil {
		return err
	}

	src, err := w.buffer(ctx, killBytes)
	if err != nil {
		return err
	}

	dst, err := w.buffer(ctx, killBytes)
	if err != nil {
		return err
	}

	fillRandom(src.mem, random.Uint64())
	fillRandom(dst.mem, random.Uint64())
	ticket, err := w.submit(&client.Copy{Dst: dst.Buffer, Src: src.Buffer, Bytes: killBytes})
	if err != nil {
		return err
	}

	time.Sleep(time.Duration(random.Int64N(int64(killMoment))))
	if err := unix.Kill(d.pid, unix.SIGKILL); err != nil {
		return fmt.Errorf("kill the driver: %w", err)
	}

	done, err := w.await(ctx, ticket)
	if err == nil && done.Outcome.Kind != outcome.DeviceLost {
		return fmt.Errorf("the copy ended %v", done.Outcome)
	}
	if err != nil && !isEnded(err) {
		return fmt.Errorf("the copy: %w", err)
	}

	return s.nextWorks(ctx, t, d.epoch)
}

// driverOf is the driver that serves a session: what clients and what we hear of the
// manager may be an epoch apart for a moment.
func (s *suite) driverOf(ctx context.Context, function string, w *work) (driver, error) {
	d, err := s.manager.waitReady(ctx, function, w.Epoch()-1)
	if err == nil && d.epoch != w.Epoch() {
		err = fmt.Errorf("a session of epoch %d, while the driver has epoch %d", w.Epoch(), d.epoch)
	}
	return d, err
}

// nextWorks waits for the successor and uses it: its memory is zero, its device works.
func (s *suite) nextWorks(ctx context.Context, t *tenant, after uint64) error {
	for {
		state, err := t.waitReady(ctx, after)
		if err != nil {
			return err
		}
		err = useOnce(ctx, t)
		// Killed again: in use, or while it opened the session.
		if (isEnded(err) || errors.Is(err, gpuerr.Busy)) && state.Epoch > after {
			after = state.Epoch
			continue
		}
		return err
	}
}

func useOnce(ctx context.Context, t *tenant) error {
	w, err := t.open(ctx)
	if err != nil {
		return err
	}

	b, err := w.buffer(ctx, 128<<10)
	if err != nil {
		return err
	}
	if at := nonZero(b.mem); at >= 0 {
		return fmt.Errorf("the next owner finds %#x at %d", b.mem[at], at)
	}
	if err := w.factorials(ctx); err != nil {
		return err
	}

	return w.Close(ctx)
}

// killYoung kills a driver, and its successor at a random moment of its start.
func (s *suite) killYoung(ctx context.Context, function string, random *rand.Rand) error {
	t, err := dial(ctx, owners[function], function)
	if err != nil {
		return err
	}

	defer t.close()
	w, err := t.open(ctx)
	if err != nil {
		return err
	}

	d, err := s.driverOf(ctx, function, w)
	if err != nil {
		return err
	}
	if err := unix.Kill(d.pid, unix.SIGKILL); err != nil {
		return fmt.Errorf("kill the driver: %w", err)
	}

	for {
		// The standby, which is being promoted, or else a process that is spawned.
		fresh, err := s.driversOf(function)
		if err != nil {
			return err
		}
		fresh = slices.DeleteFunc(fresh, func(pid int) bool { return pid == d.pid })
		if len(fresh) > 0 {
			time.Sleep(time.Duration(random.Int64N(int64(killMoment))))
			if err := unix.Kill(fresh[0], unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill the successor: %w", err)
			}
			return s.nextWorks(ctx, t, d.epoch)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("no successor was started: %w", context.Cause(ctx))
		}
		time.Sleep(time.Millisecond)
	}
}

// driversOf are the manager's children that are drivers of a function or may become
// that.
func (s *suite) driversOf(function string) ([]int, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}

	var pids []int
	for _, p := range all {
		if p.parent != s.manager.pid() || p.name != "gpu-service" {
			continue
		}
		cell, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.pid))
		if err == nil && strings.Contains(string(cell), "driver-"+function+"-") {
			pids = append(pids, p.pid)
		}
	}

	return pids, nil
}

// settleBound is for releases that follow after the clients' answers.
const settleBound = 20 * time.Second

// holdings are the manager's resources, counted by kind.
type holdings struct {
	open   map[string]int // descriptors
	mapped map[string]int // files
	cells  int            // cgroups
	others int            // processes
}

func (h holdings) String() string {
	n, m := 0, 0
	for _, k := range h.open {
		n += k
	}
	for _, k := range h.mapped {
		m += k
	}
	return fmt.Sprintf("%d descriptors, %d shared mappings, %d cgroups, %d processes", n, m, h.cells, h.others)
}

func (h holdings) equal(o holdings) bool {
	return maps.Equal(h.open, o.open) && maps.Equal(h.mapped, o.mapped) && h.cells == o.cells && h.others == o.others
}

// difference names the kinds that differ.
func (h holdings) difference(o holdings) string {
	var all []string
	for _, pair := range [][2]map[string]int{{h.open, o.open}, {h.mapped, o.mapped}} {
		kinds := map[string]bool{}
		for k := range pair[0] {
			kinds[k] = true
		}
		for k := range pair[1] {
			kinds[k] = true
		}
		for k := range kinds {
			if pair[0][k] != pair[1][k] {
				all = append(all, fmt.Sprintf("%s %d → %d", k, pair[1][k], pair[0][k]))
			}
		}
	}

	slices.Sort(all)
	return strings.Join(all, "; ")
}

// numbers are the parts of the names of descriptors and mappings that differ each time.
var numbers = regexp.MustCompile(`[0-9]+`)

// hold counts the manager's current resources.
func (s *suite) hold() (holdings, error) {
	h := holdings{open: map[string]int{}, mapped: map[string]int{}}
	open, err := descriptors(s.manager.pid())
	if err != nil {
		return h, err
	}

	for _, what := range open {
		h.open[numbers.ReplaceAllString(what, "N")]++
	}

	mapped, err := mappings(s.manager.pid())
	if err != nil {
		return h, err
	}

	for what, n := range mapped {
		// The Go runtime's own memory comes and goes.
		if strings.Contains(what, "memfd") || strings.Contains(what, "vfio") || strings.Contains(what, "bpf") {
			h.mapped[numbers.ReplaceAllString(what, "N")] += n
		}
	}

	cells, err := cgroups()
	if err != nil {
		return h, err
	}

	all, err := processes()
	h.cells, h.others = len(cells), len(all)
	return h, err
}

// settled waits, for a bounded time, until the manager holds want, and returns its holdings:
// some are released after the clients' answers.
func (s *suite) settled(c *tap.Check, want holdings) holdings {
	ctx, cancel := context.WithTimeout(c.Ctx, settleBound)
	defer cancel()
	last := tap.Get[holdings](c, "count what the manager holds")(s.hold())
	for same := 0; ; {
		time.Sleep(50 * time.Millisecond)
		now := tap.Get[holdings](c, "count what the manager holds")(s.hold())
		if now.equal(last) {
			same++
		} else {
			same = 0
		}
		last = now
		// Without an expectation: until nothing has changed for a second, which is long
		// for a standby to be there.
		if now.equal(want) || want.open == nil && same == 20 || ctx.Err() != nil {
			return now
		}
	}
}
