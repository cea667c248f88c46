package gguf

import (
	"encoding/binary"

	"capgpu/gpuerr"
)

var le = binary.LittleEndian

// cursor reads the front of a file. Once something did not fit, err is set and all that
// follows is zero.
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

// take is the next n bytes, in the file itself; nil where it ends before.
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

// bytes is a string of the file, where it lies.
func (c *cursor) bytes(what string) []byte { return c.take(c.u64(what), what) }

// name is a copy of a short string.
func (c *cursor) name(what string, most uint64) string {
	n := c.u64(what)
	if n > most {
		c.failf("%s: %d bytes are more than the %d of a name", what, n, most)
	}
	return string(c.take(n, what))
}
