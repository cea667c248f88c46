package zing

import (
	"encoding/binary"
	"unicode/utf8"
)

// A reader takes fields from the front of a payload. After one that is not there, or is no UTF-8,
// all that follow are zero, and end says so.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n uint64) []byte {
	if r.bad || n > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	p := r.rest[:n]
	r.rest = r.rest[n:]
	return p
}

func (r *reader) h1() uint8 {
	if p := r.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (r *reader) h2() uint16 {
	if p := r.take(2); p != nil {
		return binary.LittleEndian.Uint16(p)
	}
	return 0
}

func (r *reader) h4() uint32 {
	if p := r.take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (r *reader) h8() uint64 {
	if p := r.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

func (r *reader) bytes() []byte { return r.take(uint64(r.h4())) }

func (r *reader) str() string {
	p := r.bytes()
	if !utf8.Valid(p) {
		r.bad = true
		return ""
	}
	return string(p)
}

// end refuses a payload that was not used up exactly.
func (r *reader) end() error {
	if r.bad || len(r.rest) > 0 {
		return badParams("the payload is not laid out as the operation has it, or not used up")
	}
	return nil
}

func appendH4(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }
func appendH8(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

func appendBytes[T ~string | ~[]byte](b []byte, v T) []byte {
	return append(appendH4(b, uint32(len(v))), v...)
}
