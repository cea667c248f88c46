package ring

import (
	"encoding/binary"
	"runtime/debug"
	"sync/atomic"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// The driver's steps one entry at a time: slower than TakeMany and CompleteMany, plainer,
// and what those are compared with.

// Take copies out the next entry, if there is one and a completion slot is free
// for it. The entry is unchecked; see Check. When the client has broken the
// rules it answers gpuerr.Protocol, now and ever after, and the client is told.
func (s *Server) Take(e *Entry) (ok bool, err error) {
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), &err)
	if want, err := s.lookLocked(); want != awake || err != nil {
		return false, err
	}
	entry, _, err := s.partsLocked(s.taken)
	if err != nil {
		return false, s.failLocked(err)
	}
	var w [8]uint64
	for i := range w {
		w[i] = atomic.LoadUint64(&entry[i])
	}
	e.setWords(&w)
	s.taken++
	return true, nil
}

// partsLocked is where the entry at a position lies, and what its arguments lie in.
//
// +checklocks:s.takeMu
func (s *Server) partsLocked(pos uint64) (entry, args []uint64, err error) {
	place := s.placeLockedAlone(pos)
	slot, version := place/65536%65536, place/65536/65536
	switch {
	case place%65536 != pos%65536, slot > uint64(s.slots), slot == 0 && version != 0:
		return nil, nil, errPlace
	case slot == 0:
		return s.view.sq[pos%uint64(s.Entries)][:], s.view.args, nil
	}
	return s.view.kept[slot-1][:8], s.view.kept[slot-1][8:], nil
}

// placeLockedAlone is the word of a position, or sqLast.
//
// +checklocks:s.takeMu
func (s *Server) placeLockedAlone(pos uint64) uint64 {
	if s.seenTail == pos+1 && s.seenLast%65536 == pos%65536 {
		return s.seenLast
	}
	return atomic.LoadUint64(&s.view.places[pos%uint64(s.Entries)])
}

// placeAlone is that of the entry that was taken last.
func (s *Server) placeAlone() uint64 {
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	return s.placeLockedAlone(s.taken - 1)
}

// failed reports whether the client was found to have broken the rules.
func (s *Server) failed() bool {
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	return s.err != nil
}

// Args copies the arguments of a launch, once, into the given backing, which
// grows if it is too small: look at e.Count and e.InlineBytes first. e is the
// entry that was taken last, not yet Consumed. Bindings are checked as far as they
// can be without their buffers.
//
// +checklocksignore: loops with errors in them are not understood
func (s *Server) Args(e *Entry, bindings []Binding, inline []byte) (_ []Binding, _ []byte, err error) {
	bindings, inline = bindings[:0], inline[:0]
	if e.Op != OpLaunch {
		return bindings, inline, errNoArgs
	}
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), &err)
	if s.err != nil {
		return bindings, inline, s.err
	}
	_, args, err := s.partsLocked(s.taken - 1)
	if err != nil {
		return bindings, inline, err
	}
	off, n := e.ArgRange()
	if uint64(n) != uint64(e.Count)*BindingBytes+uint64(e.InlineBytes()) {
		return bindings, inline, errArgBytes
	}
	if err := checkArgs(e, uint32(8*len(args))); err != nil {
		return bindings, inline, err
	}
	args = args[off/8:]
	for ; len(bindings) < int(e.Count); args = args[4:] {
		b := Binding{Buffer: atomic.LoadUint64(&args[0]), Off: atomic.LoadUint64(&args[1]), Len: atomic.LoadUint64(&args[2])}
		if zero := atomic.LoadUint64(&args[3]); b.Buffer == 0 || b.Off+b.Len < b.Len || zero != 0 {
			return bindings[:0], inline, errBinding
		}
		bindings = append(bindings, b)
	}
	for left := int(e.InlineBytes()); left > 0; left, args = left-8, args[1:] {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], atomic.LoadUint64(&args[0]))
		inline = append(inline, b[:min(left, 8)]...)
	}
	return bindings, inline, nil
}

// Consumed gives the slots and the arena bytes of everything taken back to the
// client.
func (s *Server) Consumed() {
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), nil)
	if s.err == nil && s.consumed != s.taken {
		s.consumed = s.taken
		s.view.sqHead.Store(s.taken)
	}
}

// Complete writes the completion of the oldest entry that has none. The slot is
// free because Take reserved it. The client sees it after Flush.
func (s *Server) Complete(c *Completion) {
	s.doneMu.Lock()
	defer s.doneMu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), nil)
	if s.closed || s.gone.Load() {
		return
	}
	slot, word := s.completed%uint64(s.completions), (s.completed/uint64(s.completions)+1)%256
	if c.Outcome == outcome.Success && c.Code == gpuerr.None && c.DeviceNanos < 1<<48 {
		word += c.DeviceNanos * 65536
	} else {
		word += 256
		s.view.records[slot] = c.words()
	}
	if s.completed == s.published {
		s.first = word // what Flush stores
	} else {
		s.view.cq[slot] = word
	}
	s.completed++
}

// told is how many completions the client may have seen.
func (s *Server) told() uint64 {
	s.doneMu.Lock()
	defer s.doneMu.Unlock()
	return s.published
}

var errNoArgs = gpuerr.New(gpuerr.Unimplemented, "op: only a launch has arguments")
