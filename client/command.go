package client

import (
	"math"
	"math/bits"
	"time"

	"capgpu/gpuerr"
	"capgpu/ring"
)

// Command is one entry of a queue: *Launch, *Copy, *Fill, *Signal, *Wait,
// *WaitOrder or *Replay.
type Command interface {
	// push stages the command; the caller holds q.submit.
	push(q *Queue) (ticket uint64, err error)
}

// Launch runs a program.
type Launch struct {
	Program     *Program
	Grid, Block Dim3   // Block zero: the program's; both zero: its natural grid over the bindings
	SharedBytes uint32 // dynamic shared memory
	Bindings    []Binding
	Inline      []byte        // constants, little-endian
	Deadline    time.Duration // 0: the policy's; rounded up to microseconds
}

// Binding is a range of a buffer as a program sees it.
type Binding struct {
	Buffer *Buffer
	Off    uint64 // bytes
	Len    uint64 // bytes; 0: to the end of Buffer.Size
}

// Copy copies Bytes bytes on the device.
type Copy struct {
	Dst      *Buffer
	DstOff   uint64
	Src      *Buffer
	SrcOff   uint64
	Bytes    uint64
	Deadline time.Duration
}

// Fill writes a 32-bit pattern over a range; Off and Bytes are multiples of 4.
type Fill struct {
	Buffer   *Buffer
	Off      uint64
	Bytes    uint64
	Pattern  uint32
	Deadline time.Duration
}

// Signal advances a fence to Value once everything queued before it has ended,
// with the worst outcome since the previous Signal of the queue.
type Signal struct {
	Fence *Fence
	Value uint64
}

// Wait holds the queue until a fence has reached Value. If that point did not end
// ok, what follows up to and including the next Signal ends cancelled.
type Wait struct {
	Fence *Fence
	Value uint64
}

// WaitOrder is Wait for the order alone: what follows goes on however the point ended.
// Work that reads a buffer which was not written because other work failed still does not run.
type WaitOrder struct {
	Fence *Fence
	Value uint64
}

// +checklocks:q.submit
func (l *Launch) push(q *Queue) (uint64, error) { return q.launchLocked(l) }

// +checklocks:q.submit
func (c *Copy) push(q *Queue) (uint64, error) { return q.copyLocked(c) }

// +checklocks:q.submit
func (f *Fill) push(q *Queue) (uint64, error) { return q.fillLocked(f) }

// +checklocks:q.submit
func (s *Signal) push(q *Queue) (uint64, error) { return q.signalLocked(s.Fence, s.Value) }

// +checklocks:q.submit
func (w *Wait) push(q *Queue) (uint64, error) { return q.waitLocked(w.Fence, w.Value, false) }

// +checklocks:q.submit
func (w *WaitOrder) push(q *Queue) (uint64, error) { return q.waitLocked(w.Fence, w.Value, true) }

// +checklocks:q.submit
func (q *Queue) launchLocked(l *Launch) (ticket uint64, err error) {
	if l.Program == nil || l.Program.s != q.s {
		return 0, errForeign("Program")
	}
	if err := q.s.unpoisoned(); err != nil {
		return 0, err
	}
	if info := &l.Program.info; len(l.Bindings) != len(info.Bindings) || len(l.Inline) != int(info.InlineBytes) {
		return 0, gpuerr.New(gpuerr.Invalid, "Bindings, Inline: %d bindings and %d bytes; %s takes %d and %d", len(l.Bindings), len(l.Inline), info.Name, len(info.Bindings), info.InlineBytes)
	}
	if len(l.Bindings) > math.MaxUint16 || len(l.Inline) > math.MaxUint16 {
		return 0, gpuerr.New(gpuerr.LaunchLimit, "a launch with %d bindings and %d bytes of inline arguments is too large for the ring", len(l.Bindings), len(l.Inline))
	}
	if max(l.Block.X, l.Block.Y, l.Block.Z) > math.MaxUint16 {
		return 0, gpuerr.New(gpuerr.LaunchLimit, "Block: %v exceeds %d in one dimension", l.Block, math.MaxUint16)
	}
	if !countable(l.Grid, l.Block) {
		return 0, gpuerr.New(gpuerr.Invalid, "Grid, Block: %v of %v are no threads, or 2^64 and more", l.Grid, l.Block)
	}
	micros, err := deadlineMicros(l.Deadline)
	if err != nil {
		return 0, err
	}
	words := q.ring.Bindings(len(l.Bindings))
	for i := range l.Bindings {
		b := &l.Bindings[i]
		if b.Buffer == nil || b.Buffer.s != q.s {
			return 0, errForeign("Bindings")
		}
		length := b.Len
		if length == 0 && b.Off < b.Buffer.size {
			length = b.Buffer.size - b.Off
		}
		if length == 0 || !b.Buffer.holds(b.Off, length) {
			return 0, gpuerr.New(gpuerr.Invalid, "Bindings: %d bytes at offset %d of binding %d are not in its buffer of %d bytes", b.Len, b.Off, i, b.Buffer.size)
		}
		w := words[4*i : 4*i+4 : 4*i+4]
		w[0], w[1], w[2], w[3] = b.Buffer.handle, b.Off, length, 0
	}
	if err := q.err(); err != nil {
		return 0, err
	}
	q.entry.SetLaunch(q.next, l.Program.handle, ring.Dim3(l.Grid), ring.Dim3(l.Block), l.SharedBytes, micros)
	if err := q.ring.PushWords(&q.entry, words, l.Inline); err != nil {
		return 0, q.failure(err)
	}
	ticket = q.next
	q.next++
	return ticket, nil
}

// +checklocks:q.submit
func (q *Queue) copyLocked(c *Copy) (uint64, error) {
	if c.Dst == nil || c.Dst.s != q.s || c.Src == nil || c.Src.s != q.s {
		return 0, errForeign("Dst or Src")
	}
	if err := q.s.unpoisoned(); err != nil {
		return 0, err
	}
	micros, err := deadlineMicros(c.Deadline)
	if err != nil {
		return 0, err
	}
	if c.Bytes == 0 {
		return 0, gpuerr.New(gpuerr.Invalid, "Bytes: 0; a copy has at least one")
	}
	if !c.Dst.holds(c.DstOff, c.Bytes) {
		return 0, c.Dst.errRange("DstOff, Bytes", c.DstOff, c.Bytes)
	}
	if !c.Src.holds(c.SrcOff, c.Bytes) {
		return 0, c.Src.errRange("SrcOff, Bytes", c.SrcOff, c.Bytes)
	}
	q.entry = ring.CopyEntry(q.next, c.Dst.handle, c.DstOff, c.Src.handle, c.SrcOff, c.Bytes, micros)
	return q.pushLocked()
}

// +checklocks:q.submit
func (q *Queue) fillLocked(f *Fill) (uint64, error) {
	if f.Buffer == nil || f.Buffer.s != q.s {
		return 0, errForeign("Buffer")
	}
	if err := q.s.unpoisoned(); err != nil {
		return 0, err
	}
	micros, err := deadlineMicros(f.Deadline)
	if err != nil {
		return 0, err
	}
	if !f.Buffer.holds(f.Off, f.Bytes) {
		return 0, f.Buffer.errRange("Off, Bytes", f.Off, f.Bytes)
	}
	if (f.Off|f.Bytes)%4 != 0 || f.Bytes == 0 {
		return 0, gpuerr.New(gpuerr.Invalid, "Off, Bytes: %d bytes at %d are not whole 32-bit words", f.Bytes, f.Off)
	}
	q.entry = ring.FillEntry(q.next, f.Buffer.handle, f.Off, f.Bytes, f.Pattern, micros)
	return q.pushLocked()
}

// +checklocks:q.submit
func (q *Queue) signalLocked(f *Fence, value uint64) (uint64, error) {
	if f == nil || f.s != q.s {
		return 0, errForeign("Fence")
	}
	q.entry = ring.SignalEntry(q.next|signalMark, f.handle, value)
	return q.pushLocked()
}

// signalMark is set in the user data of signals: their completions carry a moment where
// others carry device time.
const signalMark = 1 << 63

// +checklocks:q.submit
func (q *Queue) waitLocked(f *Fence, value uint64, orderOnly bool) (uint64, error) {
	if f == nil || f.s != q.s {
		return 0, errForeign("Fence")
	}
	if q.entry = ring.WaitEntry(q.next, f.handle, value); orderOnly {
		q.entry = ring.WaitOrderEntry(q.next, f.handle, value)
	}
	return q.pushLocked()
}

// countable reports whether a launch names what the ring takes (docs/wire.md): no block, or
// neither block nor grid, or one or more threads and fewer than 2^64.
func countable(grid, block Dim3) bool {
	var none Dim3
	if grid == none && block == none {
		return true
	}
	if block == none {
		block = Dim3{1, 1, 1}
	}
	threads := uint64(block.X) * uint64(block.Y) * uint64(block.Z) // each has 16 bits
	for _, n := range [...]uint32{grid.X, grid.Y, grid.Z} {
		over, product := bits.Mul64(threads, uint64(n))
		if over != 0 {
			return false
		}
		threads = product
	}
	return threads != 0
}

// holds reports whether n bytes at an offset are within the buffer.
func (b *Buffer) holds(off, n uint64) bool { return off <= b.size && n <= b.size-off }

func (b *Buffer) errRange(fields string, off, n uint64) error {
	return gpuerr.New(gpuerr.Invalid, "%s: %d bytes at offset %d are not in the buffer of %d bytes", fields, n, off, b.size)
}

// pushLocked stages q.entry, which has no arguments.
//
// +checklocks:q.submit
func (q *Queue) pushLocked() (uint64, error) {
	if err := q.err(); err != nil {
		return 0, err
	}
	if err := q.ring.Push(&q.entry, nil, nil); err != nil {
		return 0, q.failure(err)
	}
	ticket := q.next
	q.next++
	return ticket, nil
}

func deadlineMicros(d time.Duration) (uint32, error) {
	if d == 0 {
		return 0, nil
	}
	micros := d / time.Microsecond
	if d%time.Microsecond != 0 {
		micros++
	}
	if d < 0 || micros > math.MaxUint32 {
		return 0, gpuerr.New(gpuerr.Invalid, "Deadline: %v is outside 1µs to %v", d, math.MaxUint32*time.Microsecond)
	}
	return uint32(micros), nil
}

func errForeign(field string) error {
	return gpuerr.New(gpuerr.Invalid, "%s: missing, or of another session than the queue", field)
}
