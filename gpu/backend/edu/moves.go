package edu

import (
	"bytes"
	"encoding/binary"

	"capgpu/gpu/backend"
	"capgpu/internal/shm"
	"capgpu/outcome"
)

// attempts is how often a step is tried.
const attempts = 3

// step is what the engine remembers of one step. Memory may change at any time: each
// is one look at it.
type step struct {
	before, after, arrived [stepBytes]byte
}

// transfer has the device move n bytes, 1 to stepBytes, between memory and its board,
// and returns when it has: then it touches no memory. It is false when the device is
// gone.
func (d *Device) transfer(iova, n uint64, toMemory bool) bool {
	from, to, command := uint64(iova), uint64(boardBuffer), uint32(commandRun|commandInterrupt)
	if toMemory {
		from, to, command = to, from, command|commandToMemory
	}
	return d.write(regSource, uint32(from)) &&
		d.write(regDestination, uint32(to)) &&
		d.write(regCount, uint32(n)) &&
		d.write(regCommand, command) &&
		d.await(regCommand, commandRun, transferPatience)
}

// copy moves src to dst, as memmove does.
func (d *Device) copy(t *task, dst, src backend.Span) outcome.Outcome {
	total := uint64(len(dst.Host))
	overlap := dst.IOVA < src.IOVA+total && src.IOVA < dst.IOVA+total
	backwards := overlap && dst.IOVA > src.IOVA
	for done := uint64(0); done < total; {
		n := min(total-done, stepBytes)
		off := done
		if backwards {
			off = total - done - n
		}
		if how := d.copyStep(t, dst, src, off, n, !overlap); how.Kind != outcome.OK {
			return how
		}
		done += n
	}
	return outcome.Success
}

// copyStep moves one step's bytes. Without mayRepeat the source is not there any more
// after it.
func (d *Device) copyStep(t *task, dst, src backend.Span, off, n uint64, mayRepeat bool) outcome.Outcome {
	for range attempts {
		if t.stop.Load() != stopNone {
			return cancelled
		}
		if trap, ok := load(d.step.before[:n], src, off, 1); !ok {
			return trapped(trap)
		}
		if !d.transfer(src.IOVA+off, n, false) {
			return vanished
		}
		if t.stop.Load() != stopNone {
			return cancelled
		}
		// Another look, at what may have changed while the device was reading.
		if trap, ok := load(d.step.after[:n], src, off, 1); !ok {
			return trapped(trap)
		}
		if !d.transfer(dst.IOVA+off, n, true) {
			return vanished
		}
		if trap, ok := load(d.step.arrived[:n], dst, off, 0); !ok {
			return trapped(trap)
		}
		if d.step.holds(n) {
			return outcome.Success
		}
		d.counts.repeats.Add(1)
		if !mayRepeat {
			break
		}
	}
	return deviceError
}

// holds reports whether each byte of the source that did not change has arrived.
func (s *step) holds(n uint64) bool {
	if bytes.Equal(s.arrived[:n], s.before[:n]) {
		return true
	}
	for i := range s.before[:n] {
		if s.arrived[i] != s.before[i] && s.before[i] == s.after[i] {
			return false
		}
	}
	return true
}

// fill writes a pattern. It goes to the board once, and from there to each step.
func (d *Device) fill(t *task, dst backend.Span, pattern uint32) outcome.Outcome {
	total := uint64(len(dst.Host))
	switch {
	case dst.IOVA%4 != 0:
		return trapped(outcome.Trap{Kind: outcome.Misaligned})
	case total%4 != 0:
		return trapped(outcome.Trap{Kind: outcome.Misaligned, Offset: total &^ 3})
	}
	block := d.step.before[:min(total, stepBytes)]
	for i := 0; i < len(block); i += 4 {
		binary.LittleEndian.PutUint32(block[i:], pattern)
	}
	loaded, tries := false, 0
	for off := uint64(0); off < total; {
		n := min(total-off, stepBytes)
		if t.stop.Load() != stopNone {
			return cancelled
		}
		if !loaded {
			copy(d.scratch.Bytes(), block)
			if !d.transfer(uint64(d.scratch.IOVA()), uint64(len(block)), false) {
				return vanished
			}
			loaded = true
			continue // it may be time to stop
		}
		if !d.transfer(dst.IOVA+off, n, true) {
			return vanished
		}
		if trap, ok := load(d.step.arrived[:n], dst, off, 0); !ok {
			return trapped(trap)
		}
		if !bytes.Equal(d.step.arrived[:n], block[:n]) {
			d.counts.repeats.Add(1)
			if tries++; tries == attempts {
				return deviceError
			}
			loaded = false // it may be the board that has not got it
			continue
		}
		off, tries = off+n, 0
	}
	return outcome.Success
}

// load copies from a span, at off, into to. ok is false when its memory is gone.
func load(to []byte, s backend.Span, off uint64, binding uint16) (trap outcome.Trap, ok bool) {
	return access(s, off, uint64(len(to)), binding, func(b []byte) { copy(to, b) })
}

// access runs f on bytes [off, off+n) of a span, which may not be there.
func access(s backend.Span, off, n uint64, binding uint16, f func(b []byte)) (trap outcome.Trap, ok bool) {
	b := s.Host[off : off+n]
	if addr, faulted := shm.Guard(func() { f(b) }); faulted {
		return outcome.Trap{Kind: outcome.MemoryGone, Binding: binding, Offset: off + offsetIn(b, addr)}, false
	}
	return outcome.Trap{}, true
}
