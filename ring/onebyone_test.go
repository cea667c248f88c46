package ring

import (
	"encoding/binary"
	"runtime/debug"
	"sync/atomic"

	"capgpu/gpuerr"
)

// The driver's steps one entry at a time: slower than TakeMany and CompleteMany, plainer,
// and what those are compared with.

// Take copies out the next entry, if there is one and a completion slot is free
// for it. The entry is unchecked; see Check. When the client has broken the
// rules it answers gpuerr.Protocol, now and ever after, and the client is told.
func (s *Server) Take(e *Entry) (ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), &err)
	if want, err := s.lookLocked(); want != awake || err != nil {
		return false, err
	}
	var b [EntryBytes]byte
	for i := range entryWords {
		binary.LittleEndian.PutUint64(b[8*i:], atomic.LoadUint64(&s.view.sq[s.taken%uint64(s.Entries)][i]))
	}
	e.Decode(&b)
	s.taken++
	return true, nil
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
	s.mu.Lock()
	defer s.mu.Unlock()
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
	args := s.view.args[off/8:]
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
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), nil)
	if s.err == nil {
		s.view.sqHead.Store(s.taken)
	}
}

// Complete writes the completion of the oldest entry that has none. The slot is
// free because Take reserved it. The client sees it after Flush.
func (s *Server) Complete(c *Completion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), nil)
	if s.closed || s.gone.Load() {
		return
	}
	w := c.words(uint8(s.completed/uint64(s.completions) + 1))
	to := &s.view.cq[s.completed%uint64(s.completions)]
	if s.completed == s.published {
		s.first, w[1] = w[1], to[1] // Flush stores it
	}
	*to = w
	s.completed++
}

// told is how many completions the client may have seen.
func (s *Server) told() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.published
}

var (
	errNoArgs  = gpuerr.New(gpuerr.Unimplemented, "op: only a launch has arguments")
	errBinding = gpuerr.New(gpuerr.Invalid, "binding: handle is 0, offset plus length overflows, or the zero field is not zero")
)
