package conformance

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// export:
//
//	Given a buffer with memory that another process got, as a descriptor (there is no
//	import into another session: a buffer belongs to one session),
//	when the other uses it, tries to free or resize it, dies, or continues after its
//	owner has freed it; and when another tenant, or a session of another device, names
//	it,
//	then both see the same bytes while it lives; the importer can neither free nor
//	resize it and dies without harm; it is charged to the owner, all of it and once;
//	freeing it takes the contents away from every holder, and no other memory appears
//	where it was mapped; and the names are refused. A buffer of usage device is given to
//	nobody, not even its owner, and holds what was copied into it.
//
// Sources: Genode import_vram; Magma BufferImportExport; accel ext peer_to_peer; seed 002.
func export(c *Case) {
	const n = 4 * 4096
	c.nothingHeld(Bob) // sessions of an earlier behaviour may still be closing
	owner, importer := c.session(Alice), c.session(Bob)
	nothing := get[string](c, "read the charges")(c.held(Bob))
	b := c.buffer(owner, n)
	want := bytes.Repeat([]byte("exported"), n/8)
	c.Must(b.Write(c.Ctx, 0, want), "write")
	mapped := func() ([]byte, int) {
		fd, off, length, err := b.Export(c.Ctx)
		c.Must(err, "export")
		c.Cleanup(func() { unix.Close(fd) })
		c.That(length >= n && off%4096 == 0, "%d bytes at %d were exported", length, off)
		mem, err := unix.Mmap(fd, int64(off), int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		c.Must(err, "map what was exported")
		c.Cleanup(func() { _ = unix.Munmap(mem) }) // of a goroutine that has ended early
		return mem, fd
	}

	mem, fd := mapped()
	c.That(bytes.Equal(mem[:n], want), "the importer sees other bytes")
	mem[17] = 0xee
	got := make([]byte, 1)
	c.Must(b.Read(c.Ctx, 17, got), "read")
	c.That(got[0] == 0xee, "what the importer wrote is not there")

	// That descriptor can neither resize nor free it.
	for _, size := range []int64{0, 4096, 1 << 30} {
		if err := unix.Ftruncate(fd, size); !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL) {
			c.Fatalf("the importer could resize the memory to %d: %v", size, err)
		}
	}

	// The charge is the owner's.
	text := get[string](c, "read the charges")(c.held(Bob))
	c.That(text == nothing, "the importer is charged: %s before, and now %s", nothing, text)
	var used uint64
	for _, u := range get[[]Use](c, "read the charges")(c.Stack.Charges(c.Ctx, Alice, 0)) {
		if u.Class == c.Stack.Can().Memory {
			used = u.Used
		}
	}

	c.That(used == n, "the owner is charged with %d bytes for %d", used, n)
	// It has no name elsewhere: another tenant's session, another session of the owner, and
	// one of another device.
	another := c.session(Alice)
	sessions := map[string]Session{"another tenant": importer, "another session": another}
	if c.Stack.Can().Devices > 1 {
		conn := c.dial(Carol)
		far := get[Session](c, "open another device")(conn.Open(c.Ctx, 1))
		c.Cleanup(func() { c.shut(far) })
		sessions["another device"] = far
	} else {
		c.Notef("there is one device: importing on another was not tried")
	}

	for who, s := range sessions {
		t := &table{c: c, s: s, q: c.queue(s)}
		c.Refused(t.try(func(x *Command) { x.Dst = b }, Command{Op: Fill, Bytes: 64})(c.Ctx), who+" fills the buffer", gpuerr.Stale, gpuerr.Invalid, gpuerr.Closed)
	}

	// An importer that dies does no harm.
	second, _ := mapped()
	c.Must(unix.Munmap(second), "unmap")
	c.Must(b.Read(c.Ctx, 17, got), "read")

	c.hidden(owner)

	// The owner frees it: nothing is left to read, and writes affect nobody.
	c.Must(b.Close(c.Ctx), "free")
	for i, v := range mem {
		if v != 0 {
			c.Fatalf("byte %d is still %#x after the owner has freed it", i, v)
		}
	}

	copy(mem, want)
	next := c.buffer(importer, n)
	seen := make([]byte, n)
	c.Must(next.Read(c.Ctx, 0, seen), "read")
	c.That(bytes.Equal(seen, make([]byte, n)), "the next owner sees what an importer has written late")
	c.Must(next.Write(c.Ctx, 0, bytes.Repeat([]byte{0x77}, n)), "write")
	c.That(bytes.Equal(mem[:n], want) || bytes.Equal(mem[:n], make([]byte, n)), "an importer sees what the next owner has written")
	c.Must(unix.Munmap(mem), "unmap")
	c.Must(owner.Close(c.Ctx), "close")
	c.Must(another.Close(c.Ctx), "close")
	c.nothingHeld(Alice)
}

// hidden is a buffer of usage device.
func (c *Case) hidden(s Session) {
	const n = 4096
	hidden := get[Buffer](c, "create a buffer of usage device")(s.BufferOf(c.Ctx, n, uint32(client.Device)))
	_, _, _, err := hidden.Export(c.Ctx)
	c.Refused(err, "export a buffer of usage device", gpuerr.Unimplemented)
	c.Refused(hidden.Read(c.Ctx, 0, make([]byte, 1)), "read a buffer of usage device", gpuerr.Unimplemented)
	c.Refused(hidden.Write(c.Ctx, 0, make([]byte, 1)), "write a buffer of usage device", gpuerr.Unimplemented)

	up, down, q := c.buffer(s, n), c.buffer(s, n), c.queue(s)
	want := bytes.Repeat([]byte("hidden!\n"), n/8)
	c.Must(up.Write(c.Ctx, 0, want), "write")
	c.submit(q, Command{Op: Copy, Dst: down, Src: hidden, Bytes: n})
	c.Ended("a copy out of new memory", c.completed(q, 1)[0].Outcome, outcome.Success)
	got := make([]byte, n)
	c.Must(down.Read(c.Ctx, 0, got), "read")
	c.That(bytes.Equal(got, make([]byte, n)), "new memory of the device is not zero")

	c.submit(q, Command{Op: Copy, Dst: hidden, Src: up, Bytes: n}, Command{Op: Copy, Dst: down, Src: hidden, Bytes: n})
	for _, e := range c.completed(q, 2) {
		c.Ended("a copy", e.Outcome, outcome.Success)
	}
	c.Must(down.Read(c.Ctx, 0, got), "read")
	c.That(bytes.Equal(got, want), "the device's memory has other bytes than were copied there")
	c.Must(q.Close(c.Ctx), "close")
	for _, b := range []Buffer{hidden, up, down} {
		c.Must(b.Close(c.Ctx), "close")
	}
}
