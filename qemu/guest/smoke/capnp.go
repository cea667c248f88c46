package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/schema"
)

// checkCapnp: the same over Cap'n Proto, through a gpu-gate.
func (s *smoke) checkCapnp() {
	s.check("capnp: devices listed, session opened", func(c *check) {
		p := c.dialRPC(tenant)
		defer p.close()
		f, release := p.manager.ListDevices(c.ctx, nil)
		defer release()
		r, err := f.Struct()
		c.must(err, "list devices")
		devices := get[schema.GpuDeviceInfo_List](c, "list devices")(r.Devices())
		c.that(devices.Len() == 1 && devices.At(0).State() == schema.DeviceState_ready, "%d devices", devices.Len())
		session := p.open(c)
		c.must(p.describe(c, session), "describe")
		c.must(p.closeSession(c, session), "close the session")
		name, _ := devices.At(0).Name()
		c.say("%s", name)
	})
	s.check("capnp: buffer memory travels as a descriptor", func(c *check) {
		p := c.dialRPC(tenant)
		defer p.close()
		session := p.open(c)
		b := p.buffer(c, session, 8192)
		mem := p.mapped(c, b, 8192)
		mem[8191] = 0x5a
		got := p.read(c, b, 8000, 192)
		c.that(got[191] == 0x5a, "read gives %#x", got[191])
		want := bytes.Repeat([]byte{0xc3}, 100)
		c.must(p.write(c, b, 4000, want), "write")
		c.that(bytes.Equal(mem[4000:4100], want), "a write does not show in the mapping")
		c.must(unix.Munmap(mem), "unmap")
		c.must(p.closeSession(c, session), "close the session")
	})
	s.check("capnp: launchKernel vecadd_f32", func(c *check) {
		p := c.dialRPC(tenant)
		defer p.close()
		session := p.open(c)
		const n = 10_000
		var ids [3]uint32
		var mems [3][]byte
		for i := range ids {
			b := p.buffer(c, session, 4*n)
			ids[i], mems[i] = p.id(c, b), p.mapped(c, b, 4*n)
		}
		for i := range n {
			binary.LittleEndian.PutUint32(mems[0][4*i:], math.Float32bits(float32(i)))
			binary.LittleEndian.PutUint32(mems[1][4*i:], math.Float32bits(0.5))
		}
		fence := p.fence(c, session)
		c.must(p.launch(c, session, "vecadd_f32", (n+255)/256, 256, ids[:], fence), "launch")
		end := p.wait(c, fence)
		c.that(end.ok && end.kind == schema.OutcomeKind_ok, "ended %+v", end)
		for i := range n {
			got := math.Float32frombits(binary.LittleEndian.Uint32(mems[2][4*i:]))
			c.that(got == float32(i)+0.5, "element %d is %g", i, got)
		}
		for _, mem := range mems {
			c.must(unix.Munmap(mem), "unmap")
		}
		c.must(p.closeSession(c, session), "close the session")
		c.say("%d elements, each right", n)
	})
	s.check("capnp: loadProgram and runProgram", func(c *check) { s.capnpLoad(c) })
	s.check("capnp: trap and spin have their outcomes", func(c *check) {
		p := c.dialRPC(tenant)
		defer p.close()
		session := p.open(c)
		b := p.buffer(c, session, 4096)
		fence := p.fence(c, session)
		c.must(p.launch(c, session, "trap", 1, 1, []uint32{p.id(c, b)}, fence), "launch trap")
		end := p.wait(c, fence)
		c.that(!end.ok && end.kind == schema.OutcomeKind_failed && end.cause == schema.OutcomeCause_trap && end.offset == 4096, "trap ended %+v", end)
		c.refused(p.launch(c, session, "vecadd_f32", 1, 1, nil, schema.GpuFence{}), "a launch after a trap", gpuerr.Poisoned)
		other := p.open(c)
		kind := p.spin(c, other, 200*time.Millisecond)
		c.that(kind == schema.OutcomeKind_timedOut, "spin ended %v", kind)
		c.must(p.closeSession(c, session), "close the session")
		c.must(p.closeSession(c, other), "close the other session")
		c.say("%v at offset %d, then %v; %v", end.kind, end.offset, gpuerr.Poisoned, kind)
	})
	s.check("capnp: refusals are typed exceptions", func(c *check) {
		p := c.dialRPC(tenant)
		defer p.close()
		session := p.open(c)
		_, err := p.tryBuffer(c, session, 0, "storage")
		c.refused(err, "a buffer of 0 bytes", gpuerr.Invalid)
		_, err = p.tryBuffer(c, session, math.MaxUint64, "storage")
		c.refused(err, "a huge buffer", gpuerr.Invalid, gpuerr.Quota)
		_, err = p.tryBuffer(c, session, 4096, "storage nonsense")
		c.refused(err, "an unknown usage", gpuerr.Invalid)
		c.refused(p.launch(c, session, "no_such_program", 1, 1, nil, schema.GpuFence{}), "an unknown program", gpuerr.NoProgram)
		c.refused(p.launch(c, session, "trap", 1, 1, []uint32{0xdeadbeef}, schema.GpuFence{}), "a forged buffer", gpuerr.Stale)
		c.refused(p.destroyBuffer(c, session, 12345), "destroy a forged buffer", gpuerr.Stale)
		c.refused(p.launch(c, session, "trap", math.MaxUint32, math.MaxUint32, nil, schema.GpuFence{}), "launch beyond limits", gpuerr.LaunchLimit, gpuerr.Invalid)
		weak := p.restrict(c, session, schema.SessionFacet_memory)
		c.must(p.describe(c, weak), "describe the weaker session")
		c.refused(p.launch(c, weak, "vecadd_f32", 1, 1, nil, schema.GpuFence{}), "launch on a memory session", gpuerr.Unimplemented)
		c.must(p.closeSession(c, session), "close the session")
		s.sameDriver(c)
	})
	s.check("capnp: closing a session ends everything below it", func(c *check) {
		p := c.dialRPC(tenant)
		defer p.close()
		session := p.open(c)
		b := p.buffer(c, session, 4096)
		fence := p.fence(c, session)
		weak := p.restrict(c, session, schema.SessionFacet_memory)
		c.must(p.closeSession(c, session), "close the session")
		c.refused(p.sizeOf(c, b), "ask its buffer", gone...)
		c.refused(p.poll(c, fence), "ask its fence", gone...)
		c.refused(p.describe(c, weak), "ask the session made from it", gone...)
		_, err := p.tryBuffer(c, session, 4096, "")
		c.refused(err, "create a buffer", gone...)
		s.eventuallyNoSession(c)
	})
	s.check("capnp: a session ends with its connection", func(c *check) {
		p := c.dialRPC(tenant)
		session := p.open(c)
		p.buffer(c, session, 1<<20)
		c.that(s.status(c).sessions() == 1, "%d sessions", s.status(c).sessions())
		p.close()
		s.eventuallyNoSession(c)
	})
}
