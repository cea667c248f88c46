package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
)

// openable matches the descriptors that a driver may have: its standard streams,
// its links, the descriptors that came over them, and its runtime's.
var openable = []*regexp.Regexp{
	regexp.MustCompile(`^/dev/null$`),
	regexp.MustCompile(`^pipe:\[\d+\]$`),
	regexp.MustCompile(`^socket:\[\d+\]$`),
	regexp.MustCompile(`^/memfd:.* \(deleted\)$`),
	regexp.MustCompile(`^anon_inode:\[(eventfd|eventpoll|timerfd|signalfd|pidfd)\]$`),
}

// authority:
//
//	Given a driver that serves sessions, as the kernel shows it in /proc,
//	when its descriptors and its state are examined; when bad requests are made; when
//	tenants ask for devices, facets and methods that they do not have,
//	then it has nothing open but its links, memory and events; it is under seccomp, may
//	gain no privileges and has no capabilities; no request leaves a descriptor behind;
//	and each request is refused, not ignored.
//
// Sources: libvfio-user test_bad_request_closes_fds; gVisor TestFilterCapabilities,
// #13621; Magma ACCESS_DENIED, DisabledPerformanceCounters. (There is no call for
// priority or performance counters: it is refused as any unknown method.)
func authority(c *Case) {
	conn := c.dial(Alice)
	s := c.open(conn)
	c.buffer(s, 4096)
	c.queue(s)
	can := c.Stack.Can()
	seen := 0
	for device := range can.Devices {
		pid := get[int](c, "find the driver")(c.Stack.Driver(c.Ctx, uint32(device)))
		for fd, what := range get[map[int]string](c, "list its descriptors")(descriptors(pid)) {
			ok := slices.ContainsFunc(openable, func(r *regexp.Regexp) bool { return r.MatchString(what) })
			c.That(ok, "the driver of device %d has descriptor %d: %s", device, fd, what)
			seen++
		}
		status := get[map[string]string](c, "read its status")(procStatus(pid))
		for field, want := range map[string]string{"Seccomp": "2", "NoNewPrivs": "1", "CapEff": none, "CapPrm": none, "CapInh": none, "CapAmb": none} {
			c.That(status[field] == want, "the driver of device %d: %s is %q, want %q", device, field, status[field], want)
		}
	}

	for _, pid := range c.Stack.Gates() {
		// A gate that has just started has no client yet, and gets none before it
		// is confined.
		c.Eventually("a gate is confined", func() error {
			status, err := procStatus(pid)
			if err != nil || status["Seccomp"] == "2" && status["CapEff"] == none {
				return nil // or has just ended
			}
			return fmt.Errorf("gate %d has seccomp %s and capabilities %s", pid, status["Seccomp"], status["CapEff"])
		})
	}

	// Bad requests leave nothing behind.
	driver := get[int](c, "find the driver")(c.Stack.Driver(c.Ctx, 0))
	before := c.count(driver)
	rounds := c.Count(20, 200)
	for range rounds {
		_, err := s.Buffer(c.Ctx, 0)
		c.Refused(err, "a buffer of no bytes", gpuerr.Invalid)
		_, err = s.Program(c.Ctx, "no_such_program")
		c.Refused(err, "a program of no such name", gpuerr.NoProgram)
		_, err = s.Restrict(c.Ctx, client.Policy{Limits: map[string]uint64{"nonsense": 1}})
		c.Refused(err, "a limit of no such resource", gpuerr.Invalid)
		_, err = s.Load(c.Ctx, []byte("nothing that is a program"))
		c.Refused(err, "a program that is none", gpuerr.Program, gpuerr.Invalid, gpuerr.Unimplemented)
	}

	c.Eventually("bad requests leave no descriptor behind", func() error {
		if now := c.count(driver); now > before {
			return fmt.Errorf("%d before, and now %d", before, now)
		}
		return nil
	})

	// Rights that were not given are refused.
	seenDevices := get[[]client.DeviceInfo](c, "list devices")(conn.Devices(c.Ctx))
	c.That(len(seenDevices) == 1, "%s sees %d devices; one was given", Alice, len(seenDevices))
	for _, index := range []uint32{1, 2, 1 << 31, ^uint32(0)} {
		_, err := conn.Open(c.Ctx, index)
		c.Refused(err, fmt.Sprintf("open device %d", index), gpuerr.NoDevice, gpuerr.Denied)
	}

	weak := c.session(Erin)
	program := "vecadd_f32"
	if w := c.work(s, Normal, 0); w.Commands[0].Program != nil {
		program = w.Commands[0].Program.Info().Name
	}

	_, err := weak.Program(c.Ctx, program)
	c.Refused(err, "open a program on a session for memory", gpuerr.Unimplemented)
	_, err = weak.Load(c.Ctx, []byte("x"))
	c.Refused(err, "load a program on it", gpuerr.Unimplemented)
	_, err = weak.Restrict(c.Ctx, client.Policy{Facet: client.FacetFull})
	c.Refused(err, "ask for more than it is", gpuerr.Denied, gpuerr.Unimplemented, gpuerr.Invalid)
	c.Notef("%d descriptors, each allowed; %d bad requests left none", seen, 4*rounds)
}

// none is an empty set of capabilities.
const none = "0000000000000000"

func (c *Case) count(pid int) int {
	return len(get[map[int]string](c, "list descriptors")(descriptors(pid)))
}

// settledDescriptors counts the manager's descriptors when they are want, or, for
// 0, when they have stayed the same for a while.
func (c *Case) settledDescriptors(want int) int {
	last, same := -1, 0
	for range 400 {
		now := c.count(c.Stack.Manager())
		if now == last {
			same++
		} else {
			same = 0
		}
		last = now
		if want != 0 && now == want || want == 0 && same == 20 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return last
}
