package conformance

import (
	"bytes"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/outcome"
)

// confinement:
//
//	Given work that makes the device access memory beyond its grant, and a neighbour on
//	the same device with a pattern in its memory,
//	when it does,
//	then it ends as failed, nobody's memory has changed, it is recorded if anyone
//	besides the device can see it, and only its own session suffers; and when a buffer
//	is freed while the device copies to it, the acknowledgement comes only after the
//	device has stopped: nothing is written afterwards.
//
// Sources: SPDK #2074, #2092; libvfio-user test_dma_unmap, test_quiesce; IGT
// vf-access-beyond; gVisor iommuUnmapDma. (A failed unmap must never be reported as
// done. That needs a kernel that fails: iommu and manager have tests with one.)
func confinement(c *Case) {
	can := c.Stack.Can()
	conn := c.dial(Carol)
	open := func(device uint32) Session {
		s := get[Session](c, "open a session")(conn.Open(c.Ctx, device))
		c.Cleanup(func() { c.shut(s) })
		return s
	}

	sad, neighbour := open(can.StrayDevice), open(can.StrayDevice)
	guard := c.buffer(neighbour, 64<<10)
	want := bytes.Repeat([]byte{0xc5}, 64<<10)
	c.Must(guard.Write(c.Ctx, 0, want), "write")
	recorded := 0
	if can.StrayRecord != "" {
		recorded = len(get[[]Record](c, "read the audit log")(c.Stack.Audit(can.StrayRecord)))
	}

	epoch := c.epoch(conn, can.StrayDevice)
	w := c.work(sad, Stray, 0)
	end, err := perform(c.Ctx, sad, w)
	c.Must(err, "work that strays")
	c.Ended("work that strays", end, can.StrayOutcome)
	got := make([]byte, len(want))
	c.Must(guard.Read(c.Ctx, 0, got), "read")
	c.That(bytes.Equal(got, want), "the neighbour's memory has changed")
	c.normal(neighbour)
	c.That(c.epoch(conn, can.StrayDevice) == epoch, "the driver is another one now")
	if can.StrayRecord != "" {
		c.Eventually("it is in the audit log", func() error {
			records, err := c.Stack.Audit(can.StrayRecord)
			if err == nil && len(records) <= recorded {
				err = fmt.Errorf("%d records %s, as before", len(records), can.StrayRecord)
			}
			return err
		})
	} else {
		c.Notef("nobody but this device sees that it strayed: there is no record")
	}

	if can.Devices > 1 {
		far := c.open(conn)
		c.normal(far)
	}

	// Unmap is acknowledged after DMA has stopped.
	for i := range c.Count(3, 9) {
		s := c.open(conn)
		w := c.work(s, Slow, 0)
		fd, off, length, err := w.Writes.Export(c.Ctx)
		c.Must(err, "export")
		mem, err := unix.Mmap(fd, int64(off), int(length), unix.PROT_READ, unix.MAP_SHARED)
		unix.Close(fd)
		c.Must(err, "map")
		c.Cleanup(func() { _ = unix.Munmap(mem) }) // of a goroutine that has ended early
		q := c.queue(s)
		c.submit(q, w.Commands...)
		time.Sleep(time.Duration(10+i*40) * time.Millisecond % (2 * SlowTime))
		c.Must(w.Writes.Close(c.Ctx), "give the buffer up")
		zero := func(when string) {
			for at, v := range mem {
				if v != 0 {
					c.Fatalf("%s: byte %d is %#x", when, at, v)
				}
			}
		}

		zero("when it was acknowledged")
		fresh := c.buffer(neighbour, 64<<10)
		time.Sleep(SlowTime + 50*time.Millisecond)
		zero("after the device could have written to it")
		c.Must(fresh.Read(c.Ctx, 0, got), "read")
		c.That(bytes.Equal(got, make([]byte, len(got))), "the device has written to the next owner's memory")
		c.Must(fresh.Close(c.Ctx), "close")
		for _, x := range c.completed(q, 1) {
			if x.Err != nil { // the queue was served only then
				c.Refused(x.Err, "the copy to it", gone...)
				continue
			}
			c.That(x.Outcome.Kind == outcome.Revoked || x.Outcome.Kind == outcome.OK, "the copy to it ended %v", x.Outcome)
		}

		c.Must(unix.Munmap(mem), "unmap")
		c.Must(s.Close(c.Ctx), "close")
	}
}
