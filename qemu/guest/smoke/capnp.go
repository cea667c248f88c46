package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/qemu/guest/tap"
	"capgpu/schema"
)

// checkCapnp: the same over Cap'n Proto, through a gpu-gate.
func (s *smoke) checkCapnp() {
	s.check("capnp: devices listed, session opened", func(c *check) {
		p := c.dialRPC(tenant)
		defer p.Close()
		f, release := p.Manager.ListDevices(c.Ctx, nil)
		defer release()
		r, err := f.Struct()
		c.Must(err, "list devices")
		devices := tap.Get[schema.GpuDeviceInfo_List](c.Check, "list devices")(r.Devices())
		c.That(devices.Len() == 1 && devices.At(0).State() == schema.DeviceState_ready, "%d devices", devices.Len())
		session := p.Open(c.Check, 0)
		c.Must(p.Describe(c.Check, session), "describe")
		c.Must(p.CloseSession(c.Check, session), "close the session")
		name, _ := devices.At(0).Name()
		c.Say("%s", name)
	})
	s.check("capnp: buffer memory travels as a descriptor", func(c *check) {
		p := c.dialRPC(tenant)
		defer p.Close()
		session := p.Open(c.Check, 0)
		b := p.Buffer(c.Check, session, 8192)
		mem := p.Mapped(c.Check, b, 8192)
		mem[8191] = 0x5a
		got := p.Read(c.Check, b, 8000, 192)
		c.That(got[191] == 0x5a, "read gives %#x", got[191])
		want := bytes.Repeat([]byte{0xc3}, 100)
		c.Must(p.Write(c.Check, b, 4000, want), "write")
		c.That(bytes.Equal(mem[4000:4100], want), "a write does not show in the mapping")
		c.Must(unix.Munmap(mem), "unmap")
		c.Must(p.CloseSession(c.Check, session), "close the session")
	})
	s.check("capnp: launchKernel vecadd_f32", func(c *check) {
		p := c.dialRPC(tenant)
		defer p.Close()
		session := p.Open(c.Check, 0)
		const n = 10_000
		var ids [3]uint32
		var mems [3][]byte
		for i := range ids {
			b := p.Buffer(c.Check, session, 4*n)
			ids[i], mems[i] = p.ID(c.Check, b), p.Mapped(c.Check, b, 4*n)
		}
		for i := range n {
			binary.LittleEndian.PutUint32(mems[0][4*i:], math.Float32bits(float32(i)))
			binary.LittleEndian.PutUint32(mems[1][4*i:], math.Float32bits(0.5))
		}
		fence := p.Fence(c.Check, session)
		c.Must(p.Launch(c.Check, session, "vecadd_f32", (n+255)/256, 256, ids[:], fence), "launch")
		end := p.Wait(c.Check, fence)
		c.That(end.OK && end.Kind == schema.OutcomeKind_ok, "ended %+v", end)
		for i := range n {
			got := math.Float32frombits(binary.LittleEndian.Uint32(mems[2][4*i:]))
			c.That(got == float32(i)+0.5, "element %d is %g", i, got)
		}
		for _, mem := range mems {
			c.Must(unix.Munmap(mem), "unmap")
		}
		c.Must(p.CloseSession(c.Check, session), "close the session")
		c.Say("%d elements, each right", n)
	})
	s.check("capnp: loadProgram and runProgram", func(c *check) { s.capnpLoad(c) })
	s.check("capnp: trap and spin have their outcomes", func(c *check) {
		p := c.dialRPC(tenant)
		defer p.Close()
		session := p.Open(c.Check, 0)
		b := p.Buffer(c.Check, session, 4096)
		fence := p.Fence(c.Check, session)
		c.Must(p.Launch(c.Check, session, "trap", 1, 1, []uint32{p.ID(c.Check, b)}, fence), "launch trap")
		end := p.Wait(c.Check, fence)
		c.That(!end.OK && end.Kind == schema.OutcomeKind_failed && end.Cause == schema.OutcomeCause_trap && end.Offset == 4096, "trap ended %+v", end)
		c.Refused(p.Launch(c.Check, session, "vecadd_f32", 1, 1, nil, schema.GpuFence{}), "a launch after a trap", gpuerr.Poisoned)
		other := p.Open(c.Check, 0)
		kind := p.Spin(c.Check, other, 200*time.Millisecond)
		c.That(kind == schema.OutcomeKind_timedOut, "spin ended %v", kind)
		c.Must(p.CloseSession(c.Check, session), "close the session")
		c.Must(p.CloseSession(c.Check, other), "close the other session")
		c.Say("%v at offset %d, then %v; %v", end.Kind, end.Offset, gpuerr.Poisoned, kind)
	})
	s.check("capnp: refusals are typed exceptions", func(c *check) {
		p := c.dialRPC(tenant)
		defer p.Close()
		session := p.Open(c.Check, 0)
		_, err := p.TryBuffer(c.Check, session, 0, "storage")
		c.Refused(err, "a buffer of 0 bytes", gpuerr.Invalid)
		_, err = p.TryBuffer(c.Check, session, math.MaxUint64, "storage")
		c.Refused(err, "a huge buffer", gpuerr.Invalid, gpuerr.Quota)
		_, err = p.TryBuffer(c.Check, session, 4096, "storage nonsense")
		c.Refused(err, "an unknown usage", gpuerr.Invalid)
		c.Refused(p.Launch(c.Check, session, "no_such_program", 1, 1, nil, schema.GpuFence{}), "an unknown program", gpuerr.NoProgram)
		c.Refused(p.Launch(c.Check, session, "trap", 1, 1, []uint32{0xdeadbeef}, schema.GpuFence{}), "a forged buffer", gpuerr.Stale)
		c.Refused(p.DestroyBuffer(c.Check, session, 12345), "destroy a forged buffer", gpuerr.Stale)
		c.Refused(p.Launch(c.Check, session, "trap", math.MaxUint32, math.MaxUint32, nil, schema.GpuFence{}), "launch beyond limits", gpuerr.LaunchLimit, gpuerr.Invalid)
		weak := p.Restrict(c.Check, session, schema.SessionFacet_memory)
		c.Must(p.Describe(c.Check, weak), "describe the weaker session")
		c.Refused(p.Launch(c.Check, weak, "vecadd_f32", 1, 1, nil, schema.GpuFence{}), "launch on a memory session", gpuerr.Unimplemented)
		c.Must(p.CloseSession(c.Check, session), "close the session")
		s.sameDriver(c)
	})
	s.check("capnp: closing a session ends everything below it", func(c *check) {
		p := c.dialRPC(tenant)
		defer p.Close()
		session := p.Open(c.Check, 0)
		b := p.Buffer(c.Check, session, 4096)
		fence := p.Fence(c.Check, session)
		weak := p.Restrict(c.Check, session, schema.SessionFacet_memory)
		c.Must(p.CloseSession(c.Check, session), "close the session")
		c.Refused(p.SizeOf(c.Check, b), "ask its buffer", gone...)
		c.Refused(p.Poll(c.Check, fence), "ask its fence", gone...)
		c.Refused(p.Describe(c.Check, weak), "ask the session made from it", gone...)
		_, err := p.TryBuffer(c.Check, session, 4096, "")
		c.Refused(err, "create a buffer", gone...)
		s.eventuallyNoSession(c)
	})
	s.check("capnp: a session ends with its connection", func(c *check) {
		p := c.dialRPC(tenant)
		session := p.Open(c.Check, 0)
		p.Buffer(c.Check, session, 1<<20)
		c.That(s.status(c).sessions() == 1, "%d sessions", s.status(c).sessions())
		p.Close()
		s.eventuallyNoSession(c)
	})
}
