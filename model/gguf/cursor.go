package gguf

import (
	"encoding/binary"

	"capgpu/gpuerr"
)

var le = binary.LittleEndian

// cursor reads the front of a file. After the first error err is set, and
// everything read is zero.
type cursor struct {
	data []byte
	off  uint64
	err  error
}

func (c *cursor) failf(format string, args ...any) {
	if c.err == nil {
		c.err = gpuerr.New(gpuerr.Invalid, format, args...)
	}
}

func (c *cursor) left() uint64 { return uint64(len(c.data)) - c.off }

// take returns the next n bytes, in the file itself; nil if the file ends before.
func (c *cursor) take(n uint64, what string) []byte {
	if c.err != nil {
		return nil
	}
	if n > c.left() {
		c.failf("%s: %d bytes at offset %d, and the file ends after %d", what, n, c.off, c.left())
		return nil
	}
	b := c.data[c.off:][:n:n]
	c.off += n
	return b
}

func (c *cursor) u32(what string) uint32 {
	if b := c.take(4, what); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (c *cursor) u64(what string) uint64 {
	if b := c.take(8, what); b != nil {
		return le.Uint64(b)
	}
	return 0
}

// bytes returns a string of the file, in place.
func (c *cursor) bytes(what string) []byte { return c.take(c.u64(what), what) }

// name is a copy of a short string.
func (c *cursor) name(what string, most uint64) string {
	n := c.u64(what)
	if n > most {
		c.failf("%s: %d bytes are more than the %d of a name", what, n, most)
	}
	return string(c.take(n, what))
}
