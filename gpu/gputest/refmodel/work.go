package refmodel

import (
	"encoding/binary"

	"capgpu/gpuerr"
)

// work is what the device does for one launch, copy or fill.
type work struct {
	op      uint8
	program *Program
	grid    [3]uint32
	block   [3]uint32
	shared  uint32
	pattern uint32
	inline  []byte
	spans   []span
	natural bool // grid and block follow from program and spans
}

// span is a part of a buffer that is within it.
type span struct {
	buffer *Buffer
	off, n uint64
}

func (w *work) fingerprint() Fingerprint {
	f := Begin
	f.Add(uint64(w.op))
	switch w.op {
	case workLaunch:
		f.Add(w.program.Number)
		f.AddDims(w.grid[0], w.grid[1], w.grid[2])
		f.AddDims(w.block[0], w.block[1], w.block[2])
		f.Add(uint64(w.shared))
		f.AddBytes(w.inline)
	case workFill:
		f.Add(uint64(w.pattern))
	}
	for _, s := range w.spans {
		f.Add(s.buffer.IOVA + s.off)
		f.Add(s.n)
	}
	return f
}

// resolve makes work of an entry of good form. w is written to.
func (s *Session) resolve(w *work, e *Entry, args []uint64) gpuerr.Code {
	*w = work{op: e.op(), inline: w.inline[:0], spans: w.spans[:0]}
	switch e.op() {
	case OpLaunch:
		return s.resolveLaunch(w, e, args)
	case OpCopy:
		if e.object() == e.b() && meet(e.a(), e.c(), e.d()) {
			return gpuerr.Invalid
		}
		if code := s.part(w, e.object(), e.a(), e.d(), 0); code != gpuerr.None {
			return code
		}
		return s.part(w, e.b(), e.c(), e.d(), 0)
	}
	w.pattern = uint32(e.b())
	return s.part(w, e.object(), e.a(), e.d(), 0)
}

// meet says that two ranges of n bytes have a byte in common. Neither overflows.
func meet(a, b, n uint64) bool { return a < b+n && b < a+n || a == b }

// part adds a part of a buffer, which may be used so; 0 is a copy or a fill.
func (s *Session) part(w *work, handle, off, n uint64, access Access) gpuerr.Code {
	b, known := find[Buffer](s, handle)
	if !known {
		return gpuerr.Stale
	}
	if n == 0 && access != 0 && off < b.Bytes { // to the end
		n = b.Bytes - off
	}
	end := off + n
	if n == 0 || end < n || end > b.Bytes {
		return gpuerr.Invalid
	}
	if access&1 != 0 && !b.CanRead || access&2 != 0 && !b.CanWrite {
		return gpuerr.Invalid
	}
	w.spans = append(w.spans, span{b, off, n})
	if access != 0 {
		return s.Limits.binding(off, n)
	}
	return gpuerr.None
}

// binding looks at what a launch binds.
func (l *Limits) binding(off, n uint64) gpuerr.Code {
	if l.OffsetAlign != 0 && off%uint64(l.OffsetAlign) != 0 || l.MaxBindingBytes != 0 && n > l.MaxBindingBytes {
		return gpuerr.LaunchLimit
	}
	return gpuerr.None
}

func (s *Session) resolveLaunch(w *work, e *Entry, args []uint64) gpuerr.Code {
	p, known := find[Program](s, e.object())
	if !known {
		return gpuerr.Stale
	}
	l := &s.Limits
	if e.count() > l.MaxBindings || e.inline() > l.MaxInlineBytes || uint64(e.shared())+uint64(p.SharedBytes) > uint64(l.MaxSharedBytes) {
		return gpuerr.LaunchLimit
	}
	if p.DynamicElementBytes == 0 && e.shared() != 0 || p.DynamicElementBytes != 0 && e.shared()%p.DynamicElementBytes != 0 {
		return gpuerr.Invalid
	}
	if int(e.count()) != len(p.Access) || e.inline() != p.InlineBytes {
		return gpuerr.Invalid
	}
	w.program, w.shared = p, e.shared()
	for i, access := range p.Access {
		if code := s.part(w, args[4*i], args[4*i+1], args[4*i+2], access); code != gpuerr.None {
			return code
		}
	}
	for _, word := range args[4*len(p.Access):] {
		w.inline = binary.LittleEndian.AppendUint64(w.inline, word)
	}
	w.inline = w.inline[:p.InlineBytes]
	w.grid, w.block = e.grid(), e.block()
	if w.block == [3]uint32{} {
		w.block = p.Block
		w.natural = w.grid == [3]uint32{}
	}
	return s.dims(w)
}

// dims finds the natural grid, where it is that, and looks at grid and block.
func (s *Session) dims(w *work) gpuerr.Code {
	if w.natural {
		w.grid = [3]uint32{w.naturalGroups(), 1, 1}
	}
	for i := range 3 {
		if w.grid[i] > s.Limits.MaxGridDim || w.block[i] > s.Limits.MaxBlockDim {
			return gpuerr.LaunchLimit
		}
	}
	threads := uint64(1)
	for _, n := range w.block {
		if threads *= uint64(n); threads > uint64(s.Limits.MaxThreadsPerBlock) {
			return gpuerr.LaunchLimit
		}
	}
	if !w.program.BlockFree && w.block != w.program.Block {
		return gpuerr.LaunchLimit
	}
	return gpuerr.None
}

// naturalGroups is the natural grid of docs/program-profile.md.
func (w *work) naturalGroups() uint32 {
	p, n := w.program, &w.program.Natural
	if n.Groups != 0 {
		return n.Groups
	}
	if len(w.spans) == 0 {
		return 1
	}
	at := n.Cover
	if at < 0 {
		at = 0
		for i := range w.spans {
			if w.spans[i].n < w.spans[at].n {
				at = i
			}
		}
	}
	element, per := uint64(n.ElementBytes), uint64(n.PerGroup)
	if element == 0 {
		element = 4
	}
	if per == 0 {
		per = uint64(p.Block[0]) * uint64(p.Block[1]) * uint64(p.Block[2])
	}
	elements := w.spans[at].n / element
	return uint32(min(max((elements+per-1)/per, 1), 65535))
}
