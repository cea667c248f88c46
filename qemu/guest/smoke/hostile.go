package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/qemu/guest/tap"
)

// checkHostile: each message of a client is answered by a typed error, and the driver stays
// the process it was.
func (s *smoke) checkHostile() {
	s.check("malformed sizes refused", func(c *check) {
		session, done := c.open()
		defer done()
		d := tap.Get[client.Description](c.Check, "describe")(session.Describe(c.Ctx))
		_, err := session.CreateBuffer(c.Ctx, 0, client.Storage)
		c.Refused(err, "a buffer of 0 bytes", gpuerr.Invalid)
		for _, size := range []uint64{d.MaxBufferBytes + 1, math.MaxUint64, math.MaxUint64 - 4095, 1 << 63} {
			_, err = session.CreateBuffer(c.Ctx, size, client.Storage)
			c.Refused(err, "a huge buffer", gpuerr.Invalid, gpuerr.Quota)
		}
		_, err = session.CreateBuffer(c.Ctx, 4096, client.Usage(0x80))
		c.Refused(err, "an unknown usage", gpuerr.Invalid)
		for _, entries := range []uint32{1, 3, d.MaxQueueEntries * 2, math.MaxUint32} {
			_, err = session.CreateQueue(c.Ctx, client.QueueOptions{Entries: entries})
			c.Refused(err, "a queue of a wrong size", gpuerr.Invalid, gpuerr.Quota)
		}
		s.sameDriver(c)
		c.Say("%v, %v", gpuerr.Invalid, gpuerr.Quota)
	})
	s.check("foreign, stale and forged handles refused", func(c *check) { s.handles(c) })
	s.check("unknown program refused", func(c *check) {
		session, done := c.open()
		defer done()
		_, err := session.OpenProgram(c.Ctx, "no_such_program")
		c.Refused(err, "open an unknown program", gpuerr.NoProgram)
		_, err = session.LoadProgram(c.Ctx, []byte("not a program"))
		c.Refused(err, "load garbage", gpuerr.Program)
		s.sameDriver(c)
		c.Say("%v", gpuerr.NoProgram)
	})
	s.check("hostile programs refused", func(c *check) { s.hostilePrograms(c) })
	s.check("launch limits hold", func(c *check) { s.launchLimits(c) })
	s.check("a weaker session lacks the methods", func(c *check) {
		session, done := c.open()
		defer done()
		weak := tap.Get[*client.Session](c.Check, "restrict")(session.Restrict(c.Ctx, client.Policy{Facet: client.FacetMemory}))
		_, err := weak.OpenProgram(c.Ctx, "vecadd_f32")
		c.Refused(err, "open a program on a memory session", gpuerr.Unimplemented)
		_, err = weak.LoadProgram(c.Ctx, []byte("x"))
		c.Refused(err, "load a program on a memory session", gpuerr.Unimplemented)
		_, err = weak.Restrict(c.Ctx, client.Policy{Facet: client.FacetFull})
		c.Refused(err, "restrict to more than there is", gpuerr.Denied, gpuerr.Invalid, gpuerr.Unimplemented)
		b, mem := newBuffer(c, weak, 4096)
		q := tap.Get[*client.Queue](c.Check, "create a queue")(weak.CreateQueue(c.Ctx, client.QueueOptions{}))
		filled := runAll(c, q, &client.Fill{Buffer: b, Bytes: 4096, Pattern: 0x01010101})[0]
		c.That(filled.Outcome == outcome.Success && mem[4095] == 1, "a fill, which it has, ended %v (%v)", filled.Outcome, filled.Err)
		s.sameDriver(c)
		c.Say("%v", gpuerr.Unimplemented)
	})
	s.check("another user finds the door shut", func(c *check) {
		c.refusedUser(s.socket(tenant))
		c.refusedUser(s.capnpSocket(tenant))
		// The file mode lets everyone in here; the policy does not.
		c.refusedUser(s.socket(poor))
		c.refusedUser(s.capnpSocket(poor))
		c.Say("user %d", nobody)
	})
	s.check("garbage on the tenant socket", func(c *check) {
		c.garbage(func() *wire { return tap.Get[*wire](c.Check, "dial")(dialWire(s.socket(tenant))) }, msgHello)
	})
	s.check("garbage on the control socket", func(c *check) {
		c.garbage(func() *wire { return c.rawSession() }, msgDescribe)
	})
	s.check("garbage on the Cap'n Proto socket", func(c *check) { s.capnpGarbage(c) })
	s.checkSurvived()
}

// checkSurvived is the last attack, and whether the driver has outlived all of them.
func (s *smoke) checkSurvived() {
	s.check("a ring that breaks the protocol is closed, its session lives", func(c *check) { s.ringViolation(c) })
	if s.broken == "driver" {
		_ = unix.Kill(s.driver, unix.SIGKILL)
	}
	s.check("the driver survived all of it", func(c *check) {
		s.sameDriver(c)
		session, done := c.open()
		defer done()
		s.vecadd(c, session, 1<<10, false)
		c.Say("same process, epoch %d", s.epoch)
	})
}

func (s *smoke) handles(c *check) {
	one, done1 := c.open()
	defer done1()
	two, done2 := c.open()
	defer done2()
	mine, _ := newBuffer(c, one, 4096)
	foreign, mem := newBuffer(c, two, 4096)
	mem[0] = 0x55
	q := tap.Get[*client.Queue](c.Check, "create a queue")(one.CreateQueue(c.Ctx, client.QueueOptions{}))

	// The client library may notice by itself, which is an error; or the driver
	// does, which is a completion.
	attempt := func(what string, command client.Command, want ...gpuerr.Code) {
		if _, err := q.Submit(command); err != nil {
			c.Refused(err, what, want...)
			return
		}
		var out [1]client.Completion
		_, err := q.Completions(c.Ctx, out[:])
		c.Must(err, "wait for a completion")
		c.That(out[0].Outcome.Kind == outcome.Failed, "%s ended %v", what, out[0].Outcome)
		c.Refused(out[0].Err, what, want...)
	}
	attempt("fill a foreign buffer", &client.Fill{Buffer: foreign, Bytes: 4096, Pattern: 7}, gpuerr.Stale, gpuerr.Invalid)
	c.That(mem[0] == 0x55, "a foreign buffer was written")
	stale, _ := newBuffer(c, one, 4096)
	c.Must(stale.Close(c.Ctx), "close a buffer")
	attempt("fill a closed buffer", &client.Fill{Buffer: stale, Bytes: 4096}, gpuerr.Stale, gpuerr.Closed)
	attempt("fill beyond the end", &client.Fill{Buffer: mine, Off: 4096, Bytes: 4096}, gpuerr.Invalid)
	attempt("fill with an overflow", &client.Fill{Buffer: mine, Off: math.MaxUint64 - 3, Bytes: 8}, gpuerr.Invalid)

	// Numbers that were never handed out, straight on the wire.
	w := c.rawSession()
	defer w.close()
	for _, h := range []uint64{1, math.MaxUint64, 1 << 32, rand.Uint64()} {
		code, _, _, err := w.call(msgFenceState, u64(h))
		c.Must(err, "ask for a forged fence")
		c.That(code == uint32(gpuerr.Stale) || code == uint32(gpuerr.Invalid), "handle %#x: code %d", h, code)
	}

	s.sameDriver(c)
	c.Say("%v", gpuerr.Stale)
}

func (s *smoke) launchLimits(c *check) {
	session, done := c.open()
	defer done()
	d := tap.Get[client.Description](c.Check, "describe")(session.Describe(c.Ctx))
	b, _ := newBuffer(c, session, 4096)
	p := tap.Get[*client.Program](c.Check, "open fill_u32")(session.OpenProgram(c.Ctx, "fill_u32"))
	q := tap.Get[*client.Queue](c.Check, "create a queue")(session.CreateQueue(c.Ctx, client.QueueOptions{}))
	launch := func(grid, block client.Dim3, shared uint32, bindings int, inline int) client.Launch {
		return client.Launch{Program: p, Grid: grid, Block: block, SharedBytes: shared,
			Bindings: make([]client.Binding, bindings), Inline: make([]byte, inline)}
	}
	one := client.Dim3{X: 1, Y: 1, Z: 1}
	bad := map[string]client.Launch{
		"too many threads":     launch(one, client.Dim3{X: d.MaxThreadsPerBlock + 1, Y: 1, Z: 1}, 0, 1, 4),
		"a block of no depth":  launch(one, client.Dim3{X: 1, Y: 1, Z: 0}, 0, 1, 4),
		"too big a grid":       launch(client.Dim3{X: d.MaxGridDim + 1, Y: 1, Z: 1}, one, 0, 1, 4),
		"a grid of all ones":   launch(client.Dim3{X: math.MaxUint32, Y: math.MaxUint32, Z: math.MaxUint32}, one, 0, 1, 4),
		"too much shared":      launch(one, one, d.MaxSharedBytes+1, 1, 4),
		"a binding too many":   launch(one, one, 0, 2, 4),
		"no binding":           launch(one, one, 0, 0, 4),
		"inline bytes missing": launch(one, one, 0, 1, 0),
	}
	for what, l := range bad {
		for i := range l.Bindings {
			l.Bindings[i].Buffer = b
		}
		if _, err := q.Submit(&l); err != nil {
			c.Refused(err, what, gpuerr.LaunchLimit, gpuerr.Invalid)
			continue
		}
		var out [1]client.Completion
		_, err := q.Completions(c.Ctx, out[:])
		c.Must(err, "wait for a completion")
		c.That(out[0].Outcome.Kind == outcome.Failed, "%s ended %v", what, out[0].Outcome)
		c.Refused(out[0].Err, what, gpuerr.LaunchLimit, gpuerr.Invalid)
	}

	s.sameDriver(c)
	c.Say("%d wrong launches, %v or %v", len(bad), gpuerr.LaunchLimit, gpuerr.Invalid)
}

// nobody is a user without a tenant in the policy.
const nobody = 65534

// refusedUser connects as another user, in a process of its own.
func (c *check) refusedUser(path string) {
	self := tap.Get[string](c.Check, "find this program")(os.Executable())
	p := tap.Get[*os.Process](c.Check, "start a process")(os.StartProcess(self, []string{self, "-probe=" + path}, &os.ProcAttr{
		Files: []*os.File{nil, os.Stdout, os.Stdout},
		Sys:   &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}},
	}))
	state := tap.Get[*os.ProcessState](c.Check, "wait for it")(p.Wait())
	c.That(state.ExitCode() == exitRefused, "user %d at %s: %v", nobody, path, state)
}

// exitRefused is how a probe says that it was not let in.
const exitRefused = 77

// probe tries to be served on a socket, as the user of this process.
func probe(path string) int {
	kind := unix.SOCK_SEQPACKET
	if bytes.HasSuffix([]byte(path), []byte(".capnp.sock")) {
		kind = unix.SOCK_STREAM
	}

	fd, err := unix.Socket(unix.AF_UNIX, kind, 0)
	if err != nil {
		return 1
	}

	err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return exitRefused
	}
	if err != nil {
		return 1
	}

	// Connected: then it must be closed without a word.
	w, err := newWire(fd)
	if err != nil {
		return 1
	}
	if kind == unix.SOCK_SEQPACKET {
		_ = w.send(w.message(msgHello, u32(helloVersion)))
	}
	if code, err := w.hungUp(); err == nil && (code == 0 || code == uint32(gpuerr.Denied)) {
		return exitRefused
	}

	return 1
}

// rawSession opens a session by hand and returns its control socket.
func (c *check) rawSession() *wire {
	w := tap.Get[*wire](c.Check, "dial")(dialWire(c.socket(tenant)))
	defer w.close()
	code, _, _, err := w.call(msgHello, u32(helloVersion))
	c.Must(err, "hello")
	c.That(code == 0, "hello: code %d", code)
	code, _, fds, err := w.call(msgOpenDevice, u32(0))
	c.Must(err, "open the device")
	c.That(code == 0 && len(fds) == 1, "open the device: code %d, %d descriptors", code, len(fds))
	return tap.Get[*wire](c.Check, "use the control socket")(newWire(fds[0]))
}

// garbage sends messages that break one rule each; every one ends its socket, with E_PROTOCOL
// if the client can still read, and nothing else. An unknown type is the exception: it may be
// of a later version.
func (c *check) garbage(dial func() *wire, kind uint16) {
	// a message with one field overwritten
	spoil := func(at int, value byte) func(w *wire) []byte {
		return func(w *wire) []byte {
			m := w.message(kind, u32(1))
			m[at] = value
			return m
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	noise := func(n int) func(*wire) []byte {
		return func(*wire) []byte {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(random.Uint32())
			}
			return b
		}
	}
	datagrams := []func(w *wire) []byte{
		spoil(0, 0xff),  // magic
		spoil(4, 5),     // length
		spoil(20, 3),    // descriptors that are not there
		spoil(22, 1),    // a zero field
		spoil(3, 0x80),  // a reply to nothing
		spoil(16, 0x01), // a code in a request
		func(w *wire) []byte { return w.message(kind, make([]byte, 5000)) },
		func(w *wire) []byte { m := w.message(kind, nil); clear(m[8:16]); return m }, // seq 0
		noise(1), noise(23), noise(24), noise(4096), noise(60000),
	}
	for i, datagram := range datagrams {
		w := dial()
		err := w.send(datagram(w))
		if err == nil {
			var code uint32
			code, err = w.hungUp()
			c.That(code == 0 || code == uint32(gpuerr.Protocol), "datagram %d: code %d", i, code)
		}
		w.close()
		if err != nil && !errors.Is(err, unix.EPIPE) {
			c.Fatalf("datagram %d: %v", i, err)
		}
	}

	w := dial()
	defer w.close()
	code, _, _, err := w.call(9999, nil)
	c.Must(err, "send an unknown type")
	c.That(code == uint32(gpuerr.Unimplemented), "an unknown type: code %d", code)
	code, _, _, err = w.call(kind, rightBody[kind])
	c.Must(err, "go on after it")
	c.That(code == 0, "go on after it: code %d", code)
	c.sameDriver(c)
	c.Say("%d datagrams, each ends its own socket", len(datagrams))
}

// rightBody are the right bodies of the requests that garbage is made from.
var rightBody = map[uint16][]byte{msgHello: u32(helloVersion), msgDescribe: nil}

// capnpGarbage sends bytes that are no Cap'n Proto, too much of it, or a cycle.
func (s *smoke) capnpGarbage(c *check) {
	// One segment with a root pointer that points to itself, by way of a list.
	cycle := binary.LittleEndian.AppendUint64(nil, 5<<32)
	for _, word := range []uint64{0x0001_0001_0000_0000 - 4, 0x0000_0006_ffff_fffd, 0, 0, 0} {
		cycle = binary.LittleEndian.AppendUint64(cycle, word)
	}

	random := rand.New(rand.NewPCG(3, 4))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}

	streams := map[string][]byte{
		"noise":             noise,
		"ones":              bytes.Repeat([]byte{0xff}, 4096),
		"zeros":             make([]byte, 4096),
		"a huge segment":    binary.LittleEndian.AppendUint64(nil, 0x7fffffff<<32),
		"too many segments": binary.LittleEndian.AppendUint32(nil, 0xfffffffe),
		"a cycle":           cycle,
	}
	for what, stream := range streams {
		conn := tap.Get[*net.UnixConn](c.Check, "dial")(net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: s.capnpSocket(tenant)}))
		c.Must(conn.SetDeadline(time.Now().Add(wireAnswer)), "set a deadline")
		if _, err := conn.Write(stream); err == nil {
			_ = conn.CloseWrite()
		}
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, unix.ECONNRESET) {
			c.Fatalf("%s: the connection was not closed: %v", what, err)
		}
		conn.Close()
	}

	s.sameDriver(c)
	c.Say("%d streams, each ends its own connection", len(streams))
}

// ringViolation moves sqTail far beyond the queue's entries.
func (s *smoke) ringViolation(c *check) {
	w := c.rawSession()
	defer w.close()
	code, reply, fds, err := w.call(msgCreateQueue, append(u32(16), u32(4096)...))
	c.Must(err, "create a queue")
	c.That(code == 0 && len(fds) == 3 && len(reply) == 16, "create a queue: code %d, %d descriptors, %d bytes", code, len(fds), len(reply))
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()

	ring := tap.Get[[]byte](c.Check, "map the ring")(unix.Mmap(fds[0], 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))
	defer func() { _ = unix.Munmap(ring) }()
	binary.LittleEndian.PutUint64(ring[0x040:], 1<<40) // sqTail
	_, err = unix.Write(fds[1], u64(1))
	c.Must(err, "wake the driver")

	const stateOff = 0x084
	deadline, cancel := context.WithTimeout(c.Ctx, wireAnswer)
	defer cancel()
	for binary.LittleEndian.Uint32(ring[stateOff:]) != uint32(gpuerr.Protocol) {
		select {
		case <-deadline.Done():
			c.Fatalf("the ring's state is %d, want %d", binary.LittleEndian.Uint32(ring[stateOff:]), gpuerr.Protocol)
		case <-time.After(pollEvery):
		}
	}

	code, _, _, err = w.call(msgDescribe, nil)
	c.Must(err, "use the session afterwards")
	c.That(code == 0, "use the session afterwards: code %d", code)
	s.sameDriver(c)
	c.Say("%v", gpuerr.Protocol)
}
