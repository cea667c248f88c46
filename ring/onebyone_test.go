package ring

import (
	"runtime/debug"

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
	var w [8]uint64
	s.view.loadEntry(s.taken, &w)
	e.setWords(&w)
	s.taken++
	return true, nil
}

// Args copies the arguments of a launch, once, into the given backing, which
// grows if it is too small: look at e.Count and e.InlineBytes first. e is the
// entry that was taken, not yet Consumed. Bindings are checked as far as they
// can be without their buffers.
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
	off, n := e.ArgRange()
	if uint64(n) != uint64(e.Count)*BindingBytes+uint64(e.InlineBytes()) {
		return bindings, inline, errArgBytes
	}
	if err := checkArgs(e, s.ArgBytes); err != nil {
		return bindings, inline, err
	}
	word := off / 8
	for range e.Count {
		b := Binding{Buffer: s.view.loadArg(word), Off: s.view.loadArg(word + 1), Len: s.view.loadArg(word + 2)}
		zero := s.view.loadArg(word + 3)
		if b.Buffer == 0 || b.Off+b.Len < b.Len || zero != 0 {
			return bindings[:0], inline, errBinding
		}
		bindings = append(bindings, b)
		word += BindingBytes / 8
	}
	inline = append(inline, s.view.bytes[off+uint32(e.Count)*BindingBytes:off+n]...)
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
