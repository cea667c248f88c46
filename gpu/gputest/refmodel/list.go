package refmodel

import (
	"encoding/binary"
	"slices"

	"capgpu/gpuerr"
)

// List is a recording that was accepted.
type List struct {
	entries []work
	dead    bool // something that is in it was closed
	frame   []work
	touched []bool
}

// Len is how many entries it has.
func (l *List) Len() int { return len(l.entries) }

// Spans is how many parts of buffers the i-th entry has, and Inline how many inline bytes.
func (l *List) Spans(i int) int  { return len(l.entries[i].spans) }
func (l *List) Inline(i int) int { return len(l.entries[i].inline) }

// Bytes is the size of the buffer that the k-th of these parts is of.
func (l *List) Bytes(i, k int) uint64 { return l.entries[i].spans[k].buffer.Bytes }

// Record makes a list of a recording, or says with which code it is refused.
func (s *Session) Record(entries []Entry, args []uint64) (*List, gpuerr.Code) {
	l := &List{entries: make([]work, len(entries)), frame: make([]work, len(entries)), touched: make([]bool, len(entries))}
	left := 8 * uint64(len(args))
	for i := range entries {
		e := &entries[i]
		if op := e.op(); op != OpLaunch && op != OpCopy && op != OpFill {
			return nil, gpuerr.Invalid
		}
		own, code := form(e, args)
		if code != gpuerr.None {
			return nil, code
		}
		if e.userData() != 0 || e.deadline() != 0 {
			return nil, gpuerr.Invalid
		}
		if e.op() == OpLaunch {
			if uint64(e.argBytes()) > left {
				return nil, gpuerr.Invalid
			}
			left -= uint64(e.argBytes())
			if s.Facet == 0 {
				return nil, gpuerr.Unimplemented
			}
		}
		if code := s.resolve(&l.entries[i], e, own); code != gpuerr.None {
			return nil, code
		}
	}
	for i := range l.entries {
		w := &l.entries[i]
		for _, x := range w.spans {
			x.buffer.lists = append(x.buffer.lists, l)
		}
		if w.program != nil {
			w.program.lists = append(w.program.lists, l)
		}
		l.frame[i] = work{spans: slices.Clone(w.spans), inline: slices.Clone(w.inline)}
	}
	return l, gpuerr.None
}

// replay is what the device is told of a replay.
func (s *Session) replay(e *Entry, args []uint64) (Fingerprint, gpuerr.Code) {
	l, known := find[List](s, e.object())
	if !known || l.dead {
		return 0, gpuerr.Stale
	}
	for i := range l.entries {
		from, to := &l.entries[i], &l.frame[i]
		spans, inline := append(to.spans[:0], from.spans...), append(to.inline[:0], from.inline...)
		*to = *from
		to.spans, to.inline, l.touched[i] = spans, inline, false
	}
	var order [16]int
	touched := order[:0]
	for ; len(args) >= 4; args = args[4:] {
		i := int(args[0] & 0xffff)
		if code := l.patch(&s.Limits, args[0], args[1], args[2], args[3]); code != gpuerr.None {
			return 0, code
		}
		if !l.touched[i] {
			l.touched[i] = true
			touched = append(touched, i)
		}
	}
	for _, i := range touched {
		w := &l.frame[i]
		if w.op == OpCopy && w.spans[0].buffer == w.spans[1].buffer && meet(w.spans[0].off, w.spans[1].off, w.spans[0].n) {
			return 0, gpuerr.Invalid
		}
		if w.natural {
			if code := s.dims(w); code != gpuerr.None {
				return 0, code
			}
		}
	}
	f := Begin
	f.Add(workList)
	for i := range l.frame {
		f.Add(uint64(l.frame[i].fingerprint()))
	}
	return f, gpuerr.None
}

// patch changes one entry of the copy.
func (l *List) patch(limits *Limits, head, a, b, zero uint64) gpuerr.Code {
	entry, kind, bytes, at := head&0xffff, head>>16&0xff, head>>24&0xff, head>>32
	if zero != 0 || entry >= uint64(len(l.frame)) {
		return gpuerr.Invalid
	}
	w := &l.frame[entry]
	switch kind {
	case 0:
		if bytes < 1 || bytes > 16 || at+bytes > uint64(len(w.inline)) {
			return gpuerr.Invalid
		}
		var data [16]byte
		binary.LittleEndian.PutUint64(data[:], a)
		binary.LittleEndian.PutUint64(data[8:], b)
		copy(w.inline[at:], data[:bytes])
		return gpuerr.None
	case 1:
		if bytes != 0 || a+b < b || at >= uint64(len(w.spans)) {
			return gpuerr.Invalid
		}
		recorded := l.entries[entry].spans[at].n
		if b == 0 {
			b = recorded
		}
		end := a + b
		switch {
		case end < b || end > w.spans[at].buffer.Bytes:
			return gpuerr.Invalid
		case w.op == OpCopy && b != recorded:
			return gpuerr.Invalid
		case w.op == OpFill && (a%4 != 0 || b%4 != 0):
			return gpuerr.Invalid
		}
		if w.op == OpLaunch {
			if code := limits.binding(a, b); code != gpuerr.None {
				return code
			}
		}
		w.spans[at].off, w.spans[at].n = a, b
		return gpuerr.None
	}
	return gpuerr.Invalid
}
