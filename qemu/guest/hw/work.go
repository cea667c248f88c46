package main

import (
	"bytes"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/qemu/guest/rpcpeer"
	"capgpu/qemu/guest/tap"
	"capgpu/schema"
)

// checkWork: a good client's work on the ring gives true results.
func (s *suite) checkWork() {
	s.Check("each tenant sees its functions", func(c *tap.Check) {
		for _, x := range []struct {
			tenant string
			sees   []string
		}{{alice, []string{edu0}}, {bob, []string{edu1}}, {carol, []string{edu0, edu1}}} {
			conn := tap.Get[*client.Conn](c, "dial")(client.Dial(c.Ctx, socket(x.tenant)))
			defer conn.Close()
			devices := tap.Get[[]client.DeviceInfo](c, "list devices")(conn.Devices(c.Ctx))
			c.That(len(devices) == len(x.sees), "%s sees %v, want %v", x.tenant, devices, x.sees)
			for i, d := range devices {
				c.That(d.Name == x.sees[i] && d.PCIAddress == addresses[d.Name], "%s sees %s at %s", x.tenant, d.Name, d.PCIAddress)
				c.That(d.VendorID == 0x1234 && d.DeviceID == 0x11e8 && d.Backend == "edu" && d.State == client.Ready, "%s sees %+v", x.tenant, d)
			}
		}
		t := s.tenant(c, edu0)
		defer t.close()
		_, err := t.conn.Open(c.Ctx, t.device+1)
		c.Refused(err, "alice opens bob's function", gpuerr.NoDevice, gpuerr.Denied)
	})
	s.Check("the device's own DMA copies, byte for byte", func(c *tap.Check) {
		t := s.tenant(c, edu0)
		defer t.close()
		w := t.opened(c)
		const bytesInAll = 2*stepBytes + 100 // two whole steps and a part of one
		src, dst := w.must(c, 3*stepBytes), w.must(c, 3*stepBytes)
		c.That(nonZero(dst.mem) < 0, "new memory is not zero at %d", nonZero(dst.mem))
		want := fillRandom(src.mem, 1)
		start := time.Now()
		c.Must(w.copied(c.Ctx, dst, src, 5, 3, bytesInAll), "copy")
		took := time.Since(start)
		if s.broken == "bit" {
			dst.mem[bytesInAll/2] ^= 1
		}
		c.That(bytes.Equal(dst.mem[5:5+bytesInAll], want[3:3+bytesInAll]), "the copy differs at %d", differ(dst.mem[5:], want[3:3+bytesInAll]))
		c.That(nonZero(dst.mem[:5]) < 0 && nonZero(dst.mem[5+bytesInAll:]) < 0, "the device wrote beside its destination")
		c.That(bytes.Equal(src.mem, want), "the source has changed")
		state := tap.Get[client.FenceState](c, "ask the fence")(w.fence.State(c.Ctx))
		c.That(state.Reached == 1 && state.Outcome == outcome.Success, "the fence says %+v", state)
		c.Must(w.Close(c.Ctx), "close the session")
		c.Say("%d bytes in %v", bytesInAll, took.Round(10*time.Millisecond))
	})
	s.Check("the device's unit computes factorials", func(c *tap.Check) {
		for _, f := range []string{edu0, edu1} {
			t := s.tenant(c, f)
			defer t.close()
			w := t.opened(c)
			c.Must(w.factorials(c.Ctx), f)
			c.Must(w.Close(c.Ctx), "close the session")
		}
		c.Say("0! to 12!, each right, on both functions")
	})
	s.Check("a copy that takes too long ends timedOut", func(c *tap.Check) {
		t := s.tenant(c, edu0)
		defer t.close()
		w := t.opened(c)
		d := tap.Get[client.Description](c, "describe")(w.Describe(c.Ctx))
		const deadline = 300 * time.Millisecond
		src, dst := w.must(c, 8*stepBytes), w.must(c, 8*stepBytes)
		want := fillRandom(src.mem, 2)
		start := time.Now()
		done := tap.Get[client.Completion](c, "copy")(w.run(c.Ctx, &client.Copy{Dst: dst.Buffer, Src: src.Buffer, Bytes: 8 * stepBytes, Deadline: deadline}))
		took := time.Since(start)
		c.That(done.Outcome.Kind == outcome.TimedOut, "ended %v", done.Outcome)
		c.That(took >= deadline && took <= deadline+d.HangBound, "ended after %v; deadline %v, hang bound %v", took, deadline, d.HangBound)
		// Nothing is written after that was reported.
		left := append([]byte(nil), dst.mem...)
		c.That(nonZero(dst.mem[6*stepBytes:]) < 0 && !bytes.Equal(left, want), "it was complete all the same")
		time.Sleep(oneTransfer)
		c.That(bytes.Equal(dst.mem, left), "the device went on after the outcome")
		c.Must(w.factorials(c.Ctx), "the session after that")
		c.Must(w.Close(c.Ctx), "close the session")
		c.Say("deadline %v, ended after %v, bound %v; nothing written after that", deadline, took.Round(10*time.Millisecond), deadline+d.HangBound)
	})
	s.Check("programs cannot be loaded onto this device", func(c *tap.Check) {
		t := s.tenant(c, edu0)
		defer t.close()
		w := t.opened(c)
		_, err := w.LoadProgram(c.Ctx, []byte("anything"))
		c.Refused(err, "load a program", gpuerr.Unimplemented)
		_, err = w.OpenProgram(c.Ctx, "vecadd_f32")
		c.Refused(err, "open a program of another device", gpuerr.NoProgram)
		c.Must(w.Close(c.Ctx), "close the session")
		c.Say("%v", gpuerr.Unimplemented)
	})
}

// oneTransfer is more than edu's DMA takes.
const oneTransfer = 150 * time.Millisecond

// checkCapnp: the same over Cap'n Proto, through a gpu-gate.
func (s *suite) checkCapnp() {
	s.Check("capnp: a copy and a launch on real hardware", func(c *tap.Check) {
		p := rpcpeer.Dial(c, runDir+"/"+carol+".capnp.sock")
		defer p.Close()
		session := p.Open(c, 1) // edu1, the second that carol has
		c.Must(p.Describe(c, session), "describe")
		in, out := p.Buffer(c, session, 64), p.Buffer(c, session, 64)
		c.Must(p.Write(c, in, 0, []byte{5, 0, 0, 0, 10, 0, 0, 0}), "write")
		fence := p.Fence(c, session)
		c.Must(p.Launch(c, session, "edu.factorial", 1, 2, []uint32{p.ID(c, in), p.ID(c, out)}, fence), "launch")
		end := p.Wait(c, fence)
		c.That(end.OK && end.Kind == schema.OutcomeKind_ok, "the launch ended %+v", end)
		c.That(bytes.Equal(p.Read(c, out, 0, 8), []byte{120, 0, 0, 0, 0x00, 0x5f, 0x37, 0}), "5! and 10! are % x", p.Read(c, out, 0, 8))
		want := bytes.Repeat([]byte{0xa5, 1, 2, 3}, 16)
		c.Must(p.Write(c, in, 0, want), "write")
		c.Must(p.Memcpy(c, session, out, in, 64, fence), "memcpy")
		end = p.Wait(c, fence)
		c.That(end.OK && end.Kind == schema.OutcomeKind_ok, "the copy ended %+v", end)
		got := p.Read(c, out, 0, 64)
		c.That(bytes.Equal(got, want), "the copy is % x", got)
		_, err := p.Load(c, session, []byte("anything"))
		c.Refused(err, "load a program", gpuerr.Unimplemented)
		c.Must(p.CloseSession(c, session), "close the session")
		c.Say("edu.factorial and submitMemcpy, results read back")
	})
}

// differ returns where two pieces of memory first differ.
func differ(a, b []byte) int {
	for i := range b {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

func copyOf(dst, src buffer, n uint64) *client.Copy {
	return &client.Copy{Dst: dst.Buffer, Src: src.Buffer, Bytes: n}
}
