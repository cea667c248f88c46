package conformance

import (
	"bytes"
	"errors"

	"capgpu/gpuerr"
)

// leftovers:
//
//	Given a tenant that has taken all memory and filled it with a pattern,
//	when its session closes, when it vanishes, and when the driver is killed,
//	then another tenant that takes all memory gets as much, and finds only zeros.
//
// Sources: CVE-2023-4969; IGT flr-vf1-clear.
func leftovers(c *Case) {
	pattern := bytes.Repeat([]byte{0xa7}, 1<<20)
	zeros := make([]byte, len(pattern))
	var total uint64
	for _, end := range []string{"close", "vanish", "kill"} {
		conn := get[Conn](c, "connect")(c.Stack.Dial(c.Ctx, Alice))
		s := get[Session](c, "open a session")(conn.Open(c.Ctx, 0))
		filled := c.all(s, func(b Buffer) { c.Must(b.Write(c.Ctx, 0, pattern[:b.Size()]), "fill") })
		epoch := c.epoch(conn, 0)
		switch end {
		case "close":
			c.Must(s.Close(c.Ctx), "close")
		case "vanish":
			conn.Vanish()
		case "kill":
			c.Must(c.Stack.Kill(c.Ctx, 0), "kill the driver")
			c.ready(conn, 0, epoch)
		}

		if end != "vanish" {
			conn.Close()
		}

		c.nothingHeld(Alice)
		next := c.session(Bob)
		found := c.all(next, func(b Buffer) {
			got := make([]byte, b.Size())
			c.Must(b.Read(c.Ctx, 0, got), "read")
			if bytes.Equal(got, zeros[:len(got)]) {
				return
			}
			for i, v := range got {
				c.That(v == 0, "after %s the next owner finds %#x at %d of a buffer of %d", end, v, i, len(got))
			}
		})
		c.That(found >= filled, "after %s only %d of %d bytes could be had again", end, found, filled)
		c.Must(next.Close(c.Ctx), "close")
		c.nothingHeld(Bob)
		total += found
	}

	c.Notef("closed, vanished, killed: %d KiB looked at", total>>10)
}

// all takes all memory, in buffers of falling sizes, and passes each to a function.
func (c *Case) all(s Session, each func(b Buffer)) (bytes uint64) {
	for size := uint64(1 << 20); size >= 4096; {
		b, err := s.Buffer(c.Ctx, size)
		if errors.Is(err, gpuerr.Quota) {
			size /= 2
			continue
		}
		c.Must(err, "take %d bytes", size)
		each(b)
		bytes += size
	}
	return bytes
}
