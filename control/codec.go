package control

import (
	"encoding/binary"
	"unicode/utf8"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// reader parses a body. The first error stays in err, and everything read after it
// is zero. Counts are bounded by the remaining bytes before anything is allocated
// for them.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = gpuerr.New(gpuerr.Protocol, format, args...)
	}
	r.rest = nil
}

// take returns the next n bytes, or nil after a failure.
func (r *reader) take(n int, field string) []byte {
	if r.err != nil {
		return nil
	}
	if n > len(r.rest) {
		r.fail("%s: the body ends %d bytes early", field, n-len(r.rest))
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) u8(field string) uint8 {
	if b := r.take(1, field); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16(field string) uint16 {
	if b := r.take(2, field); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32(field string) uint32 {
	if b := r.take(4, field); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64(field string) uint64 {
	if b := r.take(8, field); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// enum reads a u32 of at most max.
func (r *reader) enum(max uint32, field string) uint32 {
	v := r.u32(field)
	if v > max {
		r.fail("%s: %d is unknown", field, v)
		return 0
	}
	return v
}

// flag reads a u32 that is 0 or 1.
func (r *reader) flag(field string) bool { return r.enum(1, field) == 1 }

// handle reads a u64 that is not 0.
func (r *reader) handle(field string) uint64 {
	h := r.u64(field)
	if h == 0 && r.err == nil {
		r.fail("%s: 0 is no handle", field)
	}
	return h
}

// str reads a length and UTF-8 of at most max bytes.
func (r *reader) str(max int, field string) string {
	n := int(r.u16(field))
	if n > max {
		r.fail("%s: %d bytes, more than %d", field, n, max)
		return ""
	}
	b := r.take(n, field)
	if !utf8.Valid(b) {
		r.fail("%s: not UTF-8", field)
		return ""
	}
	return string(b)
}

// count reads the length of a list with items of at least itemBytes each.
func (r *reader) count(itemBytes int, field string) int {
	n := r.u32(field)
	if uint64(n)*uint64(itemBytes) > uint64(len(r.rest)) {
		r.fail("%s: %d items do not fit the body", field, n)
		return 0
	}
	return int(n)
}

// list reads a count and that many items.
func list[T any](r *reader, itemBytes int, field string, item func(*reader) T) []T {
	n := r.count(itemBytes, field)
	if n == 0 {
		return nil
	}
	items := make([]T, 0, n)
	for range n {
		items = append(items, item(r))
		if r.err != nil {
			return nil
		}
	}
	return items
}

func (r *reader) names(field string) []string {
	return list(r, 2, field, func(r *reader) string { return r.str(MaxStringBytes, field) })
}

func (r *reader) outcome() outcome.Outcome {
	o := outcome.Outcome{Kind: outcome.Kind(r.u8("outcome.kind")), Cause: outcome.Cause(r.u8("outcome.cause"))}
	o.Trap.Kind = outcome.TrapKind(r.u8("outcome.trapKind"))
	zero8 := r.u8("outcome.zero")
	o.Trap.Binding = r.u16("outcome.binding")
	zero16 := r.u16("outcome.zero")
	o.Trap.Workgroup = r.u32("outcome.workgroup")
	o.Trap.Lane = r.u32("outcome.lane")
	o.Trap.Offset = r.u64("outcome.offset")
	if zero8 != 0 || zero16 != 0 {
		r.fail("outcome: a zero field is not zero")
	}
	if !o.Valid() {
		r.fail("outcome: unknown kind %d, cause %d or trap %d", o.Kind, o.Cause, o.Trap.Kind)
	}
	if r.err != nil {
		return outcome.Outcome{}
	}

	return o
}

// end refuses remaining bytes.
func (r *reader) end() error {
	if r.err == nil && len(r.rest) > 0 {
		r.fail("%d bytes are left after the last field", len(r.rest))
	}
	return r.err
}

func appendU16(b []byte, v uint16) []byte { return binary.LittleEndian.AppendUint16(b, v) }
func appendU32(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }
func appendU64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

// appendStr appends s. A string that is too long for its length field is cut, but
// stays longer than any valid string, so that CheckBody refuses it.
func appendStr(b []byte, s string) []byte {
	s = s[:min(len(s), MaxMessageBytes)]
	return append(appendU16(b, uint16(len(s))), s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return appendU32(b, 1)
	}
	return appendU32(b, 0)
}

func appendNames(b []byte, names []string) []byte {
	b = appendU32(b, uint32(len(names)))
	for _, n := range names {
		b = appendStr(b, n)
	}
	return b
}

func appendOutcome(b []byte, o outcome.Outcome) []byte {
	b = append(b, byte(o.Kind), byte(o.Cause), byte(o.Trap.Kind), 0)
	b = appendU16(b, o.Trap.Binding)
	b = appendU16(b, 0)
	b = appendU32(b, o.Trap.Workgroup)
	b = appendU32(b, o.Trap.Lane)
	return appendU64(b, o.Trap.Offset)
}

// decoder is implemented by pointers to the bodies.
type decoder[T any] interface {
	*T
	decode(r *reader)
}

// parse parses a whole body.
func parse[T any, P decoder[T]](b []byte) (T, error) {
	var v T
	r := reader{rest: b}
	P(&v).decode(&r)
	if err := r.end(); err != nil {
		var zero T
		return zero, err
	}
	return v, nil
}

// body is parse for the table of layouts.
func body[T any, P decoder[T]](r *reader) {
	var v T
	P(&v).decode(r)
}

// anything accepts any body: JSON that is passed on unread.
func anything(r *reader) { r.rest = nil }

// CheckBody parses the body of a request, or of a reply without an error code, as
// its type demands, and drops the result.
func CheckBody(t MsgType, reply bool, b []byte) error {
	l := layouts[t]
	if l == nil {
		return gpuerr.New(gpuerr.Protocol, "%v: no such message", t)
	}
	read := l.request
	if reply {
		read = l.reply
	}
	if max := maxBytes(t, reply) - HeaderBytes; len(b) > max {
		return gpuerr.New(gpuerr.Protocol, "%v: a body of %d bytes is longer than %d", t, len(b), max)
	}
	r := reader{rest: b}
	read(&r)
	return r.end()
}
